import com.basho.riak.client.api.RiakClient;
import com.basho.riak.client.api.RiakCommand;
import com.basho.riak.client.api.commands.kv.DeleteValue;
import com.basho.riak.client.api.commands.kv.FetchValue;
import com.basho.riak.client.api.commands.kv.StoreValue;
import com.basho.riak.client.core.RiakCluster;
import com.basho.riak.client.core.RiakNode;
import com.basho.riak.client.core.netty.RiakResponseException;
import com.basho.riak.client.core.query.Location;
import com.basho.riak.client.core.query.Namespace;
import com.basho.riak.client.core.query.RiakObject;
import com.basho.riak.client.core.util.BinaryValue;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

/** What the programs share: clients of the server under test, short names of frequent calls, checks, and a runner. */
final class Larder {
    /** The longest time of one test: a call without an answer fails it. */
    private static final int DEADLINE_SECONDS = 30;

    private Larder() {}

    /** A client with at most this many connections; 0 is no limit. */
    static RiakClient connect(int connections) throws Exception {
        return connect(connections, "clients");
    }

    /** A client of this user where security is on; null logs nobody in. */
    static RiakClient connect(int connections, String user) throws Exception {
        List<RiakNode> nodes = new ArrayList<>();
        nodes.add(node("LARDER_PB_PORT", connections, user));
        // Where there are two gateways, the client sends a request to either.
        if (System.getenv("LARDER_OTHER_PB_PORT") != null) {
            nodes.add(node("LARDER_OTHER_PB_PORT", connections, user));
        }
        RiakCluster cluster = RiakCluster.builder(nodes).withExecutionAttempts(1).build();
        cluster.start();
        return new RiakClient(cluster);
    }

    private static RiakNode node(String port, int connections, String user) throws Exception {
        RiakNode.Builder node = new RiakNode.Builder().withRemoteAddress("127.0.0.1");
        node.withRemotePort(Integer.parseInt(System.getenv(port)));
        if (System.getenv("LARDER_CA") != null && user != null) {
            Credentials.add(node, user);
        }
        return node.withMinConnections(1).withMaxConnections(connections).withBlockOnMaxConnections(true).build();
    }

    static void stop(RiakClient client) throws Exception {
        check(client.shutdown().get(10, TimeUnit.SECONDS), "the client does not stop");
        client.cleanup();
    }

    static Location at(String bucket, String key) {
        return new Location(new Namespace(bucket), key);
    }

    static Location at(String type, String bucket, String key) {
        return new Location(new Namespace(type, bucket), key);
    }

    static RiakObject object(String value) {
        return new RiakObject().setContentType("text/plain").setValue(BinaryValue.createFromUtf8(value));
    }

    static void store(RiakClient client, Location at, String value) throws Exception {
        client.execute(new StoreValue.Builder(object(value)).withLocation(at).build());
    }

    static FetchValue.Response fetch(RiakClient client, Location at) throws Exception {
        return client.execute(new FetchValue.Builder(at).build());
    }

    static void delete(RiakClient client, Location at) throws Exception {
        client.execute(new DeleteValue.Builder(at).build());
    }

    /** The values of all siblings as texts, in order; the client has none for an empty one. */
    static List<String> texts(List<RiakObject> siblings) {
        List<String> texts = new ArrayList<>();
        for (RiakObject one : siblings) {
            texts.add(one.hasValue() ? one.getValue().toStringUtf8() : "");
        }
        texts.sort(Comparator.naturalOrder());
        return texts;
    }

    static void check(boolean holds, String otherwise) {
        if (!holds) {
            throw new AssertionError(otherwise);
        }
    }

    static void same(Object got, Object expected) {
        check(Objects.equals(got, expected), "got " + got + " instead of " + expected);
    }

    /** Fails unless the server refuses the command with exactly this text. */
    static void refused(RiakClient client, RiakCommand<?, ?> command, String text) throws Exception {
        refused(() -> client.execute(command), text);
    }

    /** Fails unless the server refuses the call with exactly this text. */
    static void refused(Callable<?> call, String text) throws Exception {
        Object answer;
        try {
            answer = call.call();
        } catch (ExecutionException failed) {
            if (!(failed.getCause() instanceof RiakResponseException)) {
                throw failed;
            }
            same(failed.getCause().getMessage(), text);
            return;
        }
        throw new AssertionError("answered " + answer + " instead of: " + text);
    }

    /** Runs every test of the program, a method that takes a client, all with one client, and ends the process. */
    static void run(Class<?> program) throws Exception {
        RiakClient client = connect(0);
        Method[] methods = program.getDeclaredMethods();
        Arrays.sort(methods, Comparator.comparing(Method::getName));
        int ran = 0;
        int failed = 0;
        for (Method method : methods) {
            boolean takesClient = Arrays.equals(method.getParameterTypes(), new Class<?>[] {RiakClient.class});
            if (takesClient && !method.isSynthetic()) {
                ran += 1;
                failed += succeeds(method, client) ? 0 : 1;
            }
        }
        stop(client);
        System.exit(ran > 0 && failed == 0 ? 0 : 1);
    }

    private static boolean succeeds(Method test, RiakClient client) {
        ExecutorService thread = Executors.newSingleThreadExecutor();
        try {
            thread.submit(() -> test.invoke(null, client)).get(DEADLINE_SECONDS, TimeUnit.SECONDS);
            System.out.println("ok    " + test.getName());
            return true;
        } catch (Exception error) {
            System.out.println("FAIL  " + test.getName());
            Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
            (cause instanceof InvocationTargetException ? cause.getCause() : cause).printStackTrace();
            return false;
        } finally {
            thread.shutdownNow();
        }
    }
}
