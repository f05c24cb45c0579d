//! The table's attributes of crypto devices, and of what devices and tasks have done.

use super::{Attribute, ENGINES_MAX, Key, Kind, PENDING_MAX, attribute, shown, words};

pub(crate) static DEVICE_TYPE: Attribute = attribute(
    Key::DeviceType,
    "TYPE",
    words(&["CPU", "SOFTWARE", "ACCELERATOR", "COPROCESSOR", "TRANSIT", "MODELLED"]),
    "",
    "What does the work. CPU: this machine's processor. SOFTWARE: the same without its instructions for cryptography, \
     from the next start of the queue manager on. ACCELERATOR: eight private-key operations at once on the processor's \
     wide registers, clear keys. COPROCESSOR: a PKCS#11 token, keys never leave it. TRANSIT: the transit engine of a \
     HashiCorp Vault or OpenBao server, keys never leave it. MODELLED: a device that this machine has not, with the \
     service times of a profile. Only the device CPU is CPU or SOFTWARE, and ALTER changes a \
     TYPE between those two alone.",
);
pub(crate) static ENGINES: Attribute = attribute(
    Key::Engines,
    "ENGINES",
    Kind::Number { min: 1, max: ENGINES_MAX },
    "1",
    "Engines that work side by side: sessions of a COPROCESSOR, connections of a TRANSIT device, engines of a MODELLED \
     one.",
);
pub(crate) static PENDING: Attribute = attribute(
    Key::Pending,
    "PENDING",
    Kind::Number { min: 0, max: PENDING_MAX },
    "0",
    "Most jobs that wait for the device, those in service not counted; further ones go to other devices, or wait in \
     front. 0 stands for 8 for each engine, for 64 at a TRANSIT device, and for 16, two batches, at an ACCELERATOR.",
);
pub(crate) static DEVICE_STATE: Attribute = shown(
    Key::DeviceState,
    "STATUS",
    "RUNNING; STARTING; STOPPED by command; OFFLINE, it was started and can't work here or not now, and is tried \
     again; FAILED, it gave a wrong result or failed too often, and stays away until it is started again.",
);
pub(crate) static REASON: Attribute =
    shown(Key::Reason, "REASON", "Why a device is OFFLINE or FAILED, or what failed last; blank when nothing did.");
pub(crate) static WAITING: Attribute =
    shown(Key::Waiting, "WAITING", "Jobs that wait for the device now, those in service not counted.");
pub(crate) static INSERV: Attribute =
    shown(Key::InService, "INSERV", "Jobs that the device's engines are working on now.");
pub(crate) static UTIL: Attribute =
    shown(Key::Utilisation, "UTIL", "Share of the last seconds that the device's engines were busy, in percent.");
pub(crate) static JOBS: Attribute =
    shown(Key::Jobs, "JOBS", "Jobs that the device has finished, those included that it failed.");
pub(crate) static ERRORS: Attribute = shown(Key::Errors, "ERRORS", "Jobs that the device has failed.");
pub(crate) static TAKEN: Attribute =
    shown(Key::Taken, "TAKEN", "When the numbers were taken, in milliseconds since 1970, UTC.");
pub(crate) static SINCE: Attribute =
    shown(Key::Since, "SINCE", "Since when it is counted, in milliseconds since 1970, UTC.");
pub(crate) static WAITHIST: Attribute = shown(
    Key::WaitingSeen,
    "WAITHIST",
    "How many jobs were waiting each time that one came: a count for 0, for 1, and so on. Shown with ALL or when asked \
     for.",
);
pub(crate) static CPUTIME: Attribute =
    shown(Key::CpuTime, "CPUTIME", "Processor time of the device's threads in nanoseconds, MODELCPU included.");
pub(crate) static MODELCPU: Attribute = shown(
    Key::ModelledCpuTime,
    "MODELCPU",
    "Processor time in nanoseconds that a modelled device's real results took; a real device would not take it.",
);
pub(crate) static ROLE_CPUTIME: Attribute = shown(
    Key::RoleCpuTime,
    "CPUTIME",
    "Processor time of the role in nanoseconds, by the clocks of the threads that play it; of the process, by its own \
     clock.",
);
pub(crate) static SEALCPU: Attribute = shown(
    Key::SealingTime,
    "SEALCPU",
    "Of the processor time of protection, what was for puts: sealing, and checking what comes sealed; nanoseconds. What \
     is neither in SEALCPU nor in OPENCPU is the adapters' own, waking up and handing over.",
);
pub(crate) static OPENCPU: Attribute =
    shown(Key::OpeningTime, "OPENCPU", "Of the processor time of protection, what was for gets: opening; nanoseconds.");
pub(crate) static SCRATCHMSGS: Attribute = shown(
    Key::ScratchMessages,
    "SCRATCHMSGS",
    "Messages that are not persistent and were written to scratch files, because the memory for messages (--memory) was \
     full.",
);
pub(crate) static SCRATCHBYTES: Attribute =
    shown(Key::ScratchBytes, "SCRATCHBYTES", "Bytes of the messages that were written to scratch files.");
pub(crate) static SCRATCHUSED: Attribute =
    shown(Key::ScratchUsed, "SCRATCHUSED", "Bytes of the messages that lie in scratch files now.");
pub(crate) static SCRATCHWAIT: Attribute = shown(
    Key::ScratchWait,
    "SCRATCHWAIT",
    "How long it was waited for scratch files, to write messages and to read them back; nanoseconds.",
);
pub(crate) static TASK_TYPE: Attribute = shown(
    Key::TaskType,
    "TASKTYPE",
    "DISPATCHER, owns connections; ADAPTER, seals and opens; TLS, of a dispatcher's connections and on its thread; \
     JOURNAL; DEVICE, for cryptography.",
);
pub(crate) static TASK_STATE: Attribute =
    shown(Key::TaskState, "STATUS", "RUNNING; ENDED, because fewer are wanted, or because the device does not run.");
pub(crate) static CONNS: Attribute = shown(Key::Connections, "CONNS", "Connections that a dispatcher has now.");
pub(crate) static REQUESTS: Attribute = shown(
    Key::Requests,
    "REQUESTS",
    "Requests that ended. Of a dispatcher, turns with something to do; of an adapter, messages and names looked up; of \
     TLS, calls of OpenSSL; of the journal, batches; of a device, jobs.",
);
pub(crate) static ELAPSED: Attribute =
    shown(Key::ElapsedTime, "ELAPSED", "Time that the task spent in requests, in nanoseconds.");
pub(crate) static REQCPU: Attribute =
    shown(Key::RequestCpuTime, "REQCPU", "Of it, processor time, in nanoseconds; the rest was waiting.");
pub(crate) static BETWCPU: Attribute = shown(
    Key::BetweenCpuTime,
    "BETWCPU",
    "Processor time of the task's thread between requests, in nanoseconds: to look for work, to wake up and to go to \
     sleep.",
);
pub(crate) static LONGEST: Attribute = shown(
    Key::LongestRequests,
    "LONGEST",
    "The longest requests as MILLISECONDS:NANOSECONDS, when each ended, UTC since 1970, and how long it took, for \
     `bulla report chinit`. Shown with ALL or when asked for.",
);
pub(crate) static ADAPBUSY: Attribute = shown(
    Key::BusyAdapters,
    "ADAPBUSY",
    "How many adapters were busy at one moment as MILLISECONDS:NUMBER, for `bulla report chinit`. Shown with ALL or \
     when asked for.",
);
pub(crate) static FORM: Attribute = shown(
    Key::Form,
    "FORM",
    "The arithmetic. RSA CRT: with the primes; RSA ME: with the public exponent; RSA ME PRIVATE: with the private one, \
     of a key without its primes; ECDSA SIGN and VERIFY; ECDH; ECDH EPHEMERAL: with a new key pair.",
);
pub(crate) static BITS: Attribute = shown(Key::KeyBits, "BITS", "Bits of the RSA modulus or of the curve's field.");
pub(crate) static OPERATION: Attribute = shown(
    Key::Operation,
    "OPERATION",
    "RSA-SIGN, RSA-UNWRAP, RSA-VERIFY, RSA-WRAP, ECDSA-SIGN, ECDSA-VERIFY, ECDH-DERIVE or ECDH-EPHEMERAL.",
);
pub(crate) static BUSYTIME: Attribute = shown(
    Key::BusyTime,
    "BUSYTIME",
    "Execution time of all jobs in nanoseconds: of each one the time of its call, divided by the lanes filled.",
);
pub(crate) static CALLS: Attribute = shown(
    Key::Calls,
    "CALLS",
    "Calls of the device with jobs of this form and key size, whatever the operation: one number for all rows of them.",
);
pub(crate) static LANES: Attribute = shown(
    Key::LanesFilled,
    "LANES",
    "Lanes that were filled in those calls; divided by CALLS, the jobs that went together.",
);
pub(crate) static EXECHIST: Attribute = shown(
    Key::ExecutionTimes,
    "EXECHIST",
    "Histogram of the execution times, for `bulla report crypto`. Shown with ALL or when asked for.",
);
pub(crate) static LATHIST: Attribute = shown(
    Key::Latencies,
    "LATHIST",
    "Histogram of the times from submission to result, for `bulla report crypto`. Shown with ALL or when asked for.",
);
