# needs: npm install rhea
node --input-type=module - <<'END'
import { readFileSync } from "node:fs";
import rhea from "rhea";

const connect = (user, passwordFile) => rhea.create_container().connect({
    host: «host», servername: «host», port: Number(«port»),
    transport: "tls", ca: [readFileSync(«ca»)],
    username: user, password: readFileSync(passwordFile, "utf8").trim(),
});

const sender = connect(«putter», «putter's password»).open_sender(«queue»);
sender.once("sendable", () => sender.send({ body: "two tons of barley", durable: true }));
sender.once("rejected", ({ delivery }) => { console.error(delivery.remote_state.error); process.exit(1); });
sender.once("accepted", () => {
    sender.connection.close();
    const receiver = connect(«getter», «getter's password»)
        .open_receiver({ source: «queue», credit_window: 0, autoaccept: false });
    receiver.add_credit(1);
    receiver.once("message", ({ message, delivery }) => {
        console.log(message.body);
        delivery.accept();
        receiver.connection.close();
    });
});
END
