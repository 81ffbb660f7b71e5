import com.basho.riak.client.api.RiakClient;
import com.basho.riak.client.api.commands.buckets.FetchBucketProperties;
import com.basho.riak.client.api.commands.kv.FetchValue;
import com.basho.riak.client.core.NoNodesAvailableException;
import com.basho.riak.client.core.query.Namespace;
import com.basho.riak.client.core.query.RiakObject;
import java.util.List;
import java.util.concurrent.ExecutionException;

/** A user with a password or a certificate, over TLS: what it was granted, and what it was not. */
final class SecurityTest {
    public static void main(String[] args) throws Exception {
        Larder.run(SecurityTest.class);
    }

    static void aUserStoresAndReads(RiakClient client) throws Exception {
        Larder.store(client, Larder.at("b", "java"), "v");
        Larder.same(Larder.texts(Larder.fetch(client, Larder.at("b", "java")).getValues(RiakObject.class)), List.of("v"));
    }

    static void whatWasNotGrantedIsRefused(RiakClient client) throws Exception {
        String text = "Permission denied: User 'clients' does not have 'riak_core.get_bucket' on default/b";
        Larder.refused(client, new FetchBucketProperties.Builder(new Namespace("b")).build(), text);
    }

    static void anotherUserIsRefusedWithThisProof(RiakClient client) throws Exception {
        // The client keeps the text of a refused log-in for its log: its callers see that no node takes their requests.
        try {
            fetchAs("others");
        } catch (ExecutionException failed) {
            Larder.same(failed.getCause().getClass(), NoNodesAvailableException.class);
            return;
        }
        throw new AssertionError("logged in as another user");
    }

    static void aClientInClearIsRefused(RiakClient client) throws Exception {
        Larder.refused(() -> fetchAs(null), "Security is enabled, please STARTTLS first");
    }

    private static FetchValue.Response fetchAs(String user) throws Exception {
        RiakClient client = Larder.connect(0, user);
        try {
            return Larder.fetch(client, Larder.at("b", "java"));
        } finally {
            Larder.stop(client);
        }
    }
}
