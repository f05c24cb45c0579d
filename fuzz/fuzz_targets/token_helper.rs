//! Any bytes as a frame between the queue manager and its token helper, in both directions, and any text as a
//! PKCS#11 URI: read or refused, and what is read is written down the same.

#![no_main]

use bulla_device::coprocessor::Uri;
use bulla_device::coprocessor::protocol::{Request, Response, read_frame, write_frame};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(request) = Request::decode(data) {
        assert_eq!(&*request.encode(), data);
        let _ = format!("{request:?}");
    }
    if let Ok(response) = Response::decode(data) {
        assert_eq!(&*response.encode(), data);
        let _ = format!("{response:?}");
    }
    let mut stream = data;
    while let Ok(body) = read_frame(&mut stream) {
        let mut again = Vec::new();
        write_frame(&mut again, &body).expect("a frame that was read");
        assert_eq!(again.get(4..), Some(&body[..]));
    }
    if let Ok(uri) = std::str::from_utf8(data).unwrap_or_default().parse::<Uri>() {
        let shown = uri.to_string();
        // What is shown can be longer than what was read: three characters for one.
        match shown.parse::<Uri>() {
            Ok(again) => assert_eq!(again, uri),
            Err(error) => assert!(shown.len() > bulla_device::coprocessor::uri::URI_BYTES_MAX, "{error}"),
        }
        assert!(uri.can_be_the_token_of(&uri));
    }
});
