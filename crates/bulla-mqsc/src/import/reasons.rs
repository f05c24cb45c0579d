//! Why nouns, types and attributes of IBM MQ are not here. Those that are missing in these tables are still named.

/// Nouns that are not here.
pub(super) const NOUNS: &[(&[&str], &str)] = &[
    (&["LISTENER", "LSTR"], "listeners are options of `bulla start`"),
    (&["SERVICE"], "the queue manager starts no programs: use the system's services, or `bulla trigger`"),
    (&["NAMELIST", "NL"], "there are no name lists"),
    (
        &["AUTHINFO"],
        "users are those of `bulla user` or of tokens, and revocation lists are files in tls/ and the key rings",
    ),
    (&["COMMINFO"], "there is no multicast"),
    (&["STGCLASS", "CFSTRUCT", "BUFFPOOL", "PSID", "MAXSMSGS"], "storage is one journal in the data directory"),
];

/// Values of CHLTYPE that are not here.
pub(super) const CHANNEL_TYPES: &[(&str, &str)] = &[
    ("SVRCONN", "clients need no channel definition: rules for them name SYSTEM.DEF.SVRCONN"),
    ("CLNTCONN", "clients need no channel definition: they connect to host and port"),
    ("AMQP", "every listener speaks AMQP 1.0"),
    ("MQTT", "there is no MQTT"),
    ("CLUSSDR", "there are no clusters"),
    ("CLUSRCVR", "there are no clusters"),
];

const CLUSTERS: &str = "there are no clusters";
const COUNTED: &str = "no switch: it is always counted, see the metrics and DISPLAY …STATUS";
const EXITS: &str = "no foreign code runs in the queue manager";
const ZOS: &str = "it is for z/OS";
const STREAMING: &str = "streaming queues are not built: use a topic with two subscriptions";
const MULTICAST: &str = "there is no multicast";
const NOTED: &str = "when it was made there; it is made anew here";

/// Attributes that are not here; of which nouns, where it matters.
pub(super) const ATTRIBUTES: &[(&[&str], &str)] = &[
    (&["ALTDATE", "ALTTIME", "CRDATE", "CRTIME"], NOTED),
    (
        &[
            "CLUSTER", "CLUSNL", "CLWLPRTY", "CLWLRANK", "CLWLUSEQ", "CLWLDATA", "CLWLEXIT", "CLWLLEN", "CLWLMRUC",
            "CLCHNAME", "DEFBIND", "DEFCLXQ", "REPOS", "REPOSNL", "PARENT", "PSCLUS", "PROXYSUB", "PUBSCOPE",
            "SUBSCOPE", "NETPRTY", "CLROUTE",
        ],
        CLUSTERS,
    ),
    (
        &[
            "ACCTQ", "ACCTCONO", "ACCTINT", "ACCTMQI", "ACTVCONO", "ACTVTRC", "MONQ", "MONCHL", "MONACLS", "STATQ",
            "STATCHL", "STATACLS", "STATINT", "STATMQI", "ACTIVREC", "ROUTEREC",
        ],
        COUNTED,
    ),
    (
        &[
            "MSGEXIT", "MSGDATA", "SENDEXIT", "SENDDATA", "RCVEXIT", "RCVDATA", "SCYEXIT", "SCYDATA", "MREXIT",
            "MRDATA", "CHADEXIT",
        ],
        EXITS,
    ),
    (
        &[
            "QSGDISP", "CMDSCOPE", "STGCLASS", "CFSTRUCT", "TPIPE", "INDXTYPE", "IGQ", "IGQUSER", "IGQAUT", "SQQMNAME",
            "DEFCDISP", "SPLCAP", "GRPUR", "EXPRYINT", "ADOPTCHK", "ADOPTMCA", "BRIDGEEV", "DNSGROUP", "DNSWLM",
            "LSTRTMR", "LU62CHL", "LUGROUP", "LUNAME", "LU62ARM", "OPORTMAX", "OPORTMIN", "RCVTIME", "RCVTMIN",
            "RCVTTYPE", "SSLTASKS", "TCPCHL", "TCPKEEP", "TCPNAME", "TCPSTACK", "TRAXSTR", "TRAXTBL", "SCYCASE",
        ],
        ZOS,
    ),
    (&["STREAMQ", "STRMQOS"], STREAMING),
    (&["MCAST"], MULTICAST),
    (&["CUSTOM"], "it is reserved there"),
    (&["DISTL"], "there are no distribution lists"),
    (&["DEFPRESP"], "each client decides by AMQP's settlement whether it waits for an answer"),
    (&["DEFREADA"], "a client reads ahead by the credit that it gives"),
    (&["PROPCTL", "MAXPROPL"], "AMQP has properties of its own, and each message keeps them"),
    (&["NPMCLASS"], "messages that are not persistent do not outlive the process"),
    (&["QSVCINT", "QSVCIEV"], "there are no service intervals: QTIME and the metrics say how long messages lie"),
    (&["RETINTVL", "SCOPE"], "it does nothing there either"),
    (&["MAXFSIZE", "CAPEXPRT"], "queues have no files of their own: MAXDEPTH bounds them"),
    (
        &["IMGRCOVQ", "IMGRCOVO", "IMGINTVL", "IMGLOGLN", "IMGSCHED", "MEDIALOG"],
        "there are no media images: back up the data directory",
    ),
    (&["TARGTYPE"], "an alias is of a queue: a SUB leads a topic to one"),
    (&["APPLTYPE"], "`bulla trigger` starts programs of its own system"),
    (&["CCSID"], "texts are UTF-8, and payloads are not converted"),
    (&["CONVERT"], "payloads are not converted"),
    (&["CONNAUTH"], "users are those of `bulla user` or of tokens: see CHCKCLNT"),
    (&["SSLKEYR", "KEYRPWD", "INITKEY"], "certificates and keys are PEM files in tls/ of the data directory"),
    (&["SSLCRLNL"], "revocation lists are files in tls/crls of the data directory"),
    (&["SSLCRYP"], "DEFINE DEVICE names crypto devices"),
    (&["SSLFIPS", "SUITEB", "CERTVPOL"], "CipherSpecs are chosen by name, and the library is not a validated module"),
    (&["REVDNS"], "hosts are not looked up: rules name addresses"),
    (&["IPADDRV", "LOCLADDR"], "addresses are options of `bulla start`, and the system chooses the local one"),
    (&["CHAD", "CHADEV"], "channels are not defined by themselves"),
    (
        &["CMDEV", "CONFIGEV", "INHIBTEV", "LOCALEV", "LOGGEREV", "REMOTEEV", "SSLEV", "STRSTPEV"],
        "events of this kind are in the audit log or the log: see events.md",
    ),
    (&["SCHINIT", "SCMDSERV", "COMMANDQ"], "channels start with the queue manager, and commands come over its socket"),
    (&["MARKINT"], "there are no browse marks"),
    (&["MAXHANDS"], "here it is of a queue, and of a user: see SET LIMIT"),
    (
        &["PSMODE", "PSNPMSG", "PSNPRES", "PSRTYCNT", "PSSYNCPT", "TREELIFE"],
        "publications are never queued as commands, and topics take no room",
    ),
    (
        &["ADVCAP", "AMQPCAP", "XRCAP", "CMDLEVEL", "PLATFORM", "SYNCPT", "VERSION", "QMID"],
        "it says what the other one is",
    ),
    (&["QMNAME"], "the name is given at the first start"),
    (&["AFFINITY", "CLNTWGHT", "DEFRECON", "SHARECNV", "USECLTID"], "it is about clients of another protocol"),
    (&["MAXINST", "MAXINSTC"], "MAXCHL, ACTCHL and SET LIMIT bound connections"),
    (&["BATCHHB"], "the next attach settles a batch in doubt"),
    (&["COMPHDR", "COMPMSG"], "sealed bytes do not shrink, and compression beside secrets gives away their length"),
    (&["KAINT"], "HBINT alone ends a silent connection"),
    (&["MCATYPE", "MCANAME"], "a channel is no process of its own"),
    (&["MODENAME", "TPNAME"], "there is no LU 6.2"),
    (&["TRPTYPE"], "channels are over TCP and TLS"),
    (&["PUTAUT"], "rights are those of MCAUSER, and SETID lets messages name another user"),
    (&["PASSWORD"], "PASSFILE names a file with the password"),
    (&["RESETSEQ", "AMQPKA", "PORT", "BACKLOG", "TMPMODEL", "TMPQPRFX", "JAASCFG"], "there is no such channel"),
    (&["USEDLQ"], "DEADQ is for all topics"),
    (&["WILDCARD"], "a subscription with wildcards gets what is published below, too"),
    (&["TYPE"], "topics and queues here are local"),
    (&["DEFPSIST"], "an alias has its target's"),
    (&["DEFPRTY"], "an alias has its target's"),
    (&["PUBACCT", "PUBAPPID", "PUBPRTY", "PSPROP"], "a publication keeps what its publisher gave it"),
    (&["SUBLEVEL", "REQONLY", "VARUSER", "EXPIRY", "DESTQMGR", "DESTCORL"], "subscriptions have no such setting"),
    (&["WSCHEMA"], "wildcards are those of topics: + and #"),
    (&["FORCE"], "a change does not ask who has the object open, but for USAGE"),
    (&["SERVICE"], "records are of this queue manager alone"),
];

/// Why an attribute is not here.
pub(super) fn of_attribute(word: &str) -> &'static str {
    let known = ATTRIBUTES.iter().find(|(words, _)| words.contains(&word));
    known.map_or("there is no such attribute", |(_, why)| why)
}

/// Attributes without which an object would do something else, or let in more: where one of them can't be taken over,
/// the object is left out.
pub(super) fn is_essential(noun: &str, word: &str) -> bool {
    let words: &[&str] = match noun {
        "QLOCAL" => &["USAGE", "GET", "PUT"],
        "QMODEL" => &["DEFTYPE"],
        "QALIAS" => &["TARGET", "TARGQ", "GET", "PUT"],
        "QREMOTE" => &["RNAME", "RQMNAME", "XMITQ", "PUT"],
        "CHANNEL" => {
            &["CHLTYPE", "CONNAME", "XMITQ", "SSLCIPH", "SSLPEER", "SSLCAUTH", "MCAUSER", "SPLPROT", "CERTLABL"]
        }
        "SUB" => &["TOPICSTR", "TOPICOBJ", "DEST", "DESTCLAS", "SELECTOR", "SUBUSER", "WSCHEMA", "DESTQMGR", "REQONLY"],
        "TOPIC" => &["TOPICSTR", "PUB", "SUB"],
        "PROCESS" => &["APPLICID"],
        "CHLAUTH" => return !matches!(word, "DESCR" | "CUSTOM" | "ALTDATE" | "ALTTIME"),
        "AUTHREC" => return word != "SERVICE",
        _ => &[],
    };
    words.contains(&word)
}

/// Values of [essential](is_essential) attributes that are not here and mean what is so here anyway.
pub(super) const HARMLESS: &[(&str, &str, &str)] =
    &[("SUB", "WSCHEMA", "TOPIC"), ("SUB", "DESTQMGR", ""), ("SUB", "REQONLY", "NO")];
