// rhea as an unmodified client.
//
//     driver.mjs put|get|browse QUEUE --url amqp[s]://HOST:PORT [--user U --password P] [--ca FILE]
//                [--cert FILE --key FILE] [--count N] [--kind text|binary|map|large] [--size BYTES]
//                [--props] [--wait SECONDS] [--selector TEXT]
//
// One JSON line a message on standard output; {"error": …} and exit code 1 where the other side refused.

import { createHash } from "node:crypto";
import { readFileSync, writeSync } from "node:fs";
import { parseArgs } from "node:util";
import rhea from "rhea";

const { values: options, positionals: [command, queue] } = parseArgs({
    allowPositionals: true,
    options: {
        url: { type: "string" },
        user: { type: "string" },
        password: { type: "string" },
        ca: { type: "string" },
        cert: { type: "string" },
        key: { type: "string" },
        count: { type: "string", default: "1" },
        kind: { type: "string", default: "text" },
        size: { type: "string", default: "2048" },
        wait: { type: "string", default: "20" },
        props: { type: "boolean", default: false },
        selector: { type: "string" },
    },
});
const count = Number(options.count);
const size = Number(options.size);
const { types } = rhea;

// Synchronous, so that nothing is lost when the process ends right after.
const show = (fields) => writeSync(1, JSON.stringify(fields) + "\n");

function fail(error) {
    show({ error: { condition: error?.condition ?? String(error?.name ?? "none"), description: error?.description ?? String(error?.message ?? error ?? "") } });
    process.exit(1);
}

function make(number) {
    const message = { durable: true };
    if (options.props) {
        message.application_properties = {
            colour: "grün",
            number: types.wrap_int(42),
            big: types.wrap_long(1234567890123),
            flag: true,
            ratio: types.wrap_double(2.5),
        };
    }
    if (options.kind === "text") {
        message.body = `message ${number}: naïve façade, 信封`;
    } else if (options.kind === "map") {
        message.body = { customer: "Zoë", count: 3, paid: true, ratio: types.wrap_double(0.25), number };
    } else {
        const block = createHash("sha256").update(`rhea ${number}`).digest();
        message.body = rhea.message.data_section(Buffer.alloc(size, block));
    }
    return message;
}

const plain = (value) => (value !== null && typeof value === "object" && "value" in value && "type" in value ? plain(value.value) : value);

function sorted(map) {
    return Object.fromEntries(Object.keys(map).sort().map((key) => [key, plain(map[key])]));
}

// The kind of a body and the bytes that stand for it.
function canonical(body) {
    if (typeof body === "string") return ["text", Buffer.from(body)];
    if (Buffer.isBuffer(body)) return ["binary", body];
    if (body?.typecode === 0x75) {
        return ["binary", Array.isArray(body.content) ? Buffer.concat(body.content) : body.content];
    }
    return ["map", Buffer.from(JSON.stringify(sorted(body)))];
}

function describe(message) {
    const [kind, body] = canonical(message.body);
    return {
        kind,
        sha256: createHash("sha256").update(body).digest("hex"),
        length: body.length,
        properties: sorted(message.application_properties ?? {}),
        message_id: message.message_id === undefined || message.message_id === null ? null : String(message.message_id),
    };
}

const url = new URL(options.url);
const container = rhea.create_container();
const settings = { host: url.hostname, port: Number(url.port), reconnect: false, container_id: `rhea-${process.pid}` };
if (url.protocol === "amqps:") {
    Object.assign(settings, { transport: "tls", ca: [readFileSync(options.ca)], servername: url.hostname, rejectUnauthorized: true });
    if (options.cert) {
        Object.assign(settings, { cert: readFileSync(options.cert), key: readFileSync(options.key ?? options.cert), enable_sasl_external: true });
    }
}
if (options.user) Object.assign(settings, { username: options.user, password: options.password });
else if (!options.cert) settings.username = "anonymous";

for (const event of ["connection_error", "session_error", "sender_error", "receiver_error"]) {
    container.on(event, (context) => fail((context.sender ?? context.receiver ?? context.session ?? context.connection).error ?? context.error));
}
container.on("disconnected", (context) => fail(context.error ?? { condition: "disconnected" }));
container.on("error", fail);

const connection = container.connect(settings);
if (command === "put") {
    const sender = connection.open_sender({ target: queue });
    const made = [];
    let sent = 0;
    let confirmed = 0;
    container.on("sendable", () => {
        while (sender.sendable() && sent < count) {
            made.push(make(sent));
            sender.send(made[sent]);
            sent += 1;
        }
    });
    container.on("accepted", () => {
        show(describe(made[confirmed]));
        confirmed += 1;
        if (confirmed === count) leave();
    });
    container.on("rejected", (context) => fail(context.delivery.remote_state?.error ?? { condition: "rejected" }));
    container.on("released", () => fail({ condition: "released" }));
} else {
    const browse = command === "browse";
    const source = browse ? { address: queue, distribution_mode: "copy" } : { address: queue };
    if (options.selector) source.filter = rhea.filter.selector(options.selector);
    const receiver = connection.open_receiver({ source, credit_window: 0, autoaccept: false });
    receiver.add_credit(count);
    let got = 0;
    const timer = setTimeout(leave, Number(options.wait) * 1000);
    container.on("message", (context) => {
        show(describe(context.message));
        if (!browse) context.delivery.accept();
        got += 1;
        if (got === count) {
            clearTimeout(timer);
            leave();
        }
    });
}

// The connection's close goes out after the last disposition, so its answer confirms both.
function leave() {
    container.removeAllListeners("disconnected");
    container.on("connection_close", () => process.exit(0));
    container.on("disconnected", () => process.exit(0));
    connection.close();
}
