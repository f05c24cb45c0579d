//! The table's attributes of connections.

use super::{ALL, Attribute, Key, WHERE, attribute, shown, words};

static TYPE: Attribute = attribute(
    Key::ConnectionType,
    "TYPE",
    words(&["CONN", "HANDLE", "ALL"]),
    "CONN",
    "CONN: a row for each connection. HANDLE: a row for each open link. ALL: both.",
);
static USERID: Attribute =
    shown(Key::ConnectionUser, "USERID", "The user in force; empty where the client has not signed in.");
static APPLTAG: Attribute =
    shown(Key::ConnectionApplication, "APPLTAG", "The application: the container id that the client gave.");
static CONNAME: Attribute = shown(Key::ConnectionAddress, "CONNAME", "The client's address and port.");
static PRODUCT: Attribute =
    shown(Key::ConnectionProduct, "PRODUCT", "The client's product and version, where it gives them.");
static SSLCIPH: Attribute = shown(Key::ConnectionCipher, "SSLCIPH", "The cipher suite; empty without TLS.");
static SSLGROUP: Attribute =
    shown(Key::ConnectionKeyGroup, "SSLGROUP", "The group by which its keys were agreed on; empty without TLS.");
static SECONDS: Attribute = shown(Key::ConnectionSeconds, "SECONDS", "Seconds since it was accepted.");
static HANDLES: Attribute = shown(Key::ConnectionHandles, "HANDLES", "How many links are open.");
static OBJNAME: Attribute = shown(
    Key::HandleObject,
    "OBJNAME",
    "Of a link: the queue, topic or channel as it was opened; empty where each message names its own.",
);
static OPENOPTS: Attribute = shown(
    Key::HandlePurpose,
    "OPENOPTS",
    "Of a link: INPUT, INPUT_EXCL, BROWSE, OUTPUT, PUBLISH, SUBSCRIBE, UNITS (units of work) or CHANNEL.",
);
static UNSETTLED: Attribute =
    shown(Key::HandleUnsettled, "UNSETTLED", "Of a link: messages delivered to it and not settled.");

/// DISPLAY CONN: what steers it.
pub(super) const OPTIONS: &[&Attribute] = &[&TYPE, &WHERE, &ALL];
/// DISPLAY CONN: what it shows.
pub(super) const STATUS: &[&Attribute] =
    &[&USERID, &APPLTAG, &CONNAME, &PRODUCT, &SSLCIPH, &SSLGROUP, &SECONDS, &HANDLES, &OBJNAME, &OPENOPTS, &UNSETTLED];
