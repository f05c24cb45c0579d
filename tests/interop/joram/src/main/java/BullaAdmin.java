import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Hashtable;
import javax.naming.Context;
import javax.naming.InitialContext;
import javax.naming.NamingException;
import org.objectweb.jtests.jms.admin.Admin;

/**
 * How JORAM's tests come by their connection factories and destinations: from Qpid JMS's own JNDI context, which is a table of
 * names. Queues are defined and deleted in MQSC, so that each test finds its own empty. {@code bulla.url} is where the queue
 * manager listens, {@code bulla.program} and {@code bulla.data} are whom to tell.
 */
public final class BullaAdmin implements Admin {
    private final Hashtable<String, String> names = new Hashtable<>();

    @Override
    public String getName() {
        return "Bulla";
    }

    @Override
    public Context createContext() throws NamingException {
        names.put(Context.INITIAL_CONTEXT_FACTORY, "org.apache.qpid.jms.jndi.JmsInitialContextFactory");
        return new InitialContext(names);
    }

    @Override
    public void createConnectionFactory(String name) {
        names.put("connectionfactory." + name, System.getProperty("bulla.url"));
    }

    @Override
    public void createQueueConnectionFactory(String name) {
        createConnectionFactory(name);
    }

    @Override
    public void createTopicConnectionFactory(String name) {
        createConnectionFactory(name);
    }

    @Override
    public void createQueue(String name) {
        mqsc("DEFINE QLOCAL('" + name + "') REPLACE");
        names.put("queue." + name, name);
    }

    @Override
    public void createTopic(String name) {
        names.put("topic." + name, name);
    }

    @Override
    public void deleteQueue(String name) {
        mqsc("DELETE QLOCAL('" + name + "') PURGE");
        names.remove("queue." + name);
    }

    @Override
    public void deleteTopic(String name) {
        names.remove("topic." + name);
    }

    @Override
    public void deleteConnectionFactory(String name) {
        names.remove("connectionfactory." + name);
    }

    @Override
    public void deleteQueueConnectionFactory(String name) {
        deleteConnectionFactory(name);
    }

    @Override
    public void deleteTopicConnectionFactory(String name) {
        deleteConnectionFactory(name);
    }

    @Override
    public void startServer() {}

    @Override
    public void stopServer() {}

    @Override
    public void start() {}

    @Override
    public void stop() {}

    private static void mqsc(String command) {
        String program = System.getProperty("bulla.program"), data = System.getProperty("bulla.data");
        try {
            Process process = new ProcessBuilder(program, "mqsc", "--data", data, "-c", command).redirectErrorStream(true).start();
            String said = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
            if (process.waitFor() != 0) {
                throw new IllegalStateException(command + ": " + said);
            }
        } catch (IOException | InterruptedException error) {
            throw new IllegalStateException(command, error);
        }
    }
}
