//! Why the machine itself refuses a request, as a table: the status and a sentence for the client.

/// Why a request is refused before anybody has seen it. The connection closes after the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Status of the answer.
    pub status: u16,
    /// What is wrong, for the client and the log.
    pub why: &'static str,
}

macro_rules! refusals {
    ($($name:ident = $status:literal, $why:literal;)*) => {
        $(#[doc = $why] pub const $name: Refusal = Refusal { status: $status, why: $why };)*
    };
}

refusals! {
    BARE_CR = 400, "a carriage return without a line feed";
    BARE_LF = 400, "a line feed without a carriage return";
    CONTROL_CHARACTER = 400, "a control character in the head";
    EMPTY_LINE = 400, "an empty line in place of a request";
    FOLDED_LINE = 400, "a line that begins with white space";
    REQUEST_LINE = 400, "the request line is not a method, a target and HTTP/1.1";
    HEADER_NAME = 400, "the name of a header";
    HEADER_VALUE = 400, "the value of a header";
    TARGET_FORM = 400, "the target must be a path that begins with a slash";
    TARGET_CHARACTER = 400, "a character in the target that must be percent-encoded";
    TARGET_PERCENT = 400, "a percent sign in the target without two hexadecimal digits";
    HOST_COUNT = 400, "a request has exactly one Host header";
    HOST_VALUE = 400, "the value of Host";
    LENGTH_TWICE = 400, "more than one Content-Length header";
    LENGTH_VALUE = 400, "the value of Content-Length";
    LENGTH_AND_CODING = 400, "both Content-Length and Transfer-Encoding";
    CODING_TWICE = 400, "more than one Transfer-Encoding header";
    CODING_VALUE = 400, "the value of Transfer-Encoding";
    CODING_IN_OLD_VERSION = 400, "Transfer-Encoding in a request of HTTP/1.0";
    CHUNK_SIZE = 400, "the size of a chunk";
    CHUNK_LINE = 400, "the line of a chunk is too long";
    CHUNK_EXTENSIONS = 400, "too many chunk extensions";
    CHUNK_END = 400, "a chunk does not end where its size says";
    TRAILER = 400, "a trailer";
    HEAD_TOO_SLOW = 408, "the head of the request did not come in time";
    BODY_TOO_SLOW = 408, "the body of the request did not come in time";
    BODY_TOO_LARGE = 413, "the body is larger than this server takes";
    TARGET_TOO_LONG = 414, "the target is longer than this server takes";
    EXPECTATION = 417, "an expectation other than 100-continue";
    HEAD_TOO_LARGE = 431, "the headers are longer than this server takes";
    TOO_MANY_HEADERS = 431, "more headers than this server takes";
    TRAILERS_TOO_LARGE = 431, "the trailers are longer than this server takes";
    CODING_UNKNOWN = 501, "a transfer coding other than chunked";
    VERSION = 505, "a version of HTTP other than 1.1 and 1.0";
}
