import com.basho.riak.client.api.RiakClient;
import com.basho.riak.client.api.commands.buckets.FetchBucketProperties;
import com.basho.riak.client.core.query.Namespace;

/** A user with a password, over TLS: what it was granted, and what it was not. */
final class SecurityTest {
    public static void main(String[] args) throws Exception {
        Larder.run(SecurityTest.class);
    }

    static void aUserStoresAndReads(RiakClient client) throws Exception {
        Larder.store(client, Larder.at("b", "java"), "v");
        Larder.check(!Larder.fetch(client, Larder.at("b", "java")).isNotFound(), "not found");
    }

    static void whatWasNotGrantedIsRefused(RiakClient client) throws Exception {
        String text = "Permission denied: User 'clients' does not have 'riak_core.get_bucket' on default/b";
        Larder.refused(client, new FetchBucketProperties.Builder(new Namespace("b")).build(), text);
    }
}
