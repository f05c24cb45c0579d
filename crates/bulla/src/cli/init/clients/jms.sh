# needs: org.apache.qpid:qpid-jms-client, and what it depends on, in the folder lib
cat > FirstMessage.java <<'END'
import jakarta.jms.JMSContext;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.qpid.jms.JmsConnectionFactory;

class FirstMessage {
    static JMSContext connect(String user, String passwordFile) throws Exception {
        String uri = "amqps://" + «address» + "?transport.trustStoreType=PKCS12&transport.trustStoreLocation="
            + «trust store in a URI»;
        return new JmsConnectionFactory(user, Files.readString(Path.of(passwordFile)).strip(), uri).createContext();
    }

    public static void main(String[] args) throws Exception {
        try (JMSContext context = connect(«putter», «putter's password»)) {
            context.createProducer().send(context.createQueue(«queue»), "two tons of barley");
        }
        try (JMSContext context = connect(«getter», «getter's password»)) {
            System.out.println(context.createConsumer(context.createQueue(«queue»)).receiveBody(String.class, 10_000));
        }
    }
}
END
java -cp 'lib/*' FirstMessage.java
