//! What a channel's partner says at attach and writes on a message, and what a journal says of a channel.
#![no_main]

use bulla::channel::note::{ReceiverNote, SenderNote};
use bulla::channel::protocol::{ReceiverGreeting, SenderGreeting};
use bulla::channel::transmission;
use bulla_amqp::{Payload, Sections, Symbol, Value};
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Some(note) = SenderNote::decode(data) {
        assert_eq!(SenderNote::decode(&note.encode()), Some(note));
    }
    if let Some(note) = ReceiverNote::decode(data) {
        assert_eq!(note.encode(), data);
    }
    if let Ok(Value::Map(entries)) = Value::from_bytes(data) {
        let named = |(key, value): (Value, Value)| Some((Symbol::new(key.as_str()?)?, value));
        let properties: Vec<(Symbol, Value)> = entries.into_iter().filter_map(named).collect();
        if let Some(greeting) = SenderGreeting::from_properties(&properties) {
            assert_eq!(SenderGreeting::from_properties(&greeting.to_properties()), Some(greeting));
        }
        if let Some(greeting) = ReceiverGreeting::from_properties(&properties) {
            assert_eq!(ReceiverGreeting::from_properties(&greeting.to_properties()), Some(greeting));
        }
    }
    let payload = Payload::from(data.chunks(7).map(Bytes::copy_from_slice).collect::<Vec<_>>());
    let Ok(sections) = Sections::scan(&payload) else { return };
    let _ = transmission::destination(&payload, &sections);
    let (rest, found) = transmission::taken_off(&payload, &sections);
    assert_eq!(Sections::scan(&rest).as_ref(), Ok(&found));
    assert_eq!(found.delivery_annotations, None);
});
