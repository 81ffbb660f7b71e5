import com.basho.riak.client.api.RiakClient;
import com.basho.riak.client.api.cap.Quorum;
import com.basho.riak.client.api.commands.buckets.FetchBucketProperties;
import com.basho.riak.client.api.commands.buckets.ResetBucketProperties;
import com.basho.riak.client.api.commands.buckets.StoreBucketProperties;
import com.basho.riak.client.core.query.BucketProperties;
import com.basho.riak.client.core.query.Namespace;
import com.basho.riak.client.core.query.functions.Function;
import java.util.List;

/** Properties of buckets: fetched, stored, reset. The client has no command for those of a type. */
final class PropsTest {
    public static void main(String[] args) throws Exception {
        Larder.run(PropsTest.class);
    }

    private static BucketProperties fetch(RiakClient client, Namespace bucket) throws Exception {
        return client.execute(new FetchBucketProperties.Builder(bucket).build()).getBucketProperties();
    }

    static void aBucketHasTheDefaults(RiakClient client) throws Exception {
        BucketProperties props = fetch(client, new Namespace("fresh"));
        Larder.same(props.getNVal(), 3);
        Larder.same(props.getAllowMulti(), false);
        Larder.same(props.getLastWriteWins(), false);
        Larder.same(props.getR(), Quorum.quorumQuorum());
        Larder.same(props.getDw(), Quorum.quorumQuorum());
        Larder.same(props.getPr(), new Quorum(0));
        Larder.same(props.getNotFoundOk(), true);
        Larder.same(props.getChashKeyFunction(), Function.newErlangFunction("riak_core_util", "chash_std_keyfun"));
        Larder.same(props.getPrecommitHooks(), List.of());
    }

    static void theyAreStoredAndReset(RiakClient client) throws Exception {
        for (Namespace bucket : List.of(new Namespace("changed"), new Namespace("many", "changed"))) {
            BucketProperties before = fetch(client, bucket);
            client.execute(new StoreBucketProperties.Builder(bucket)
                    .withNVal(2)
                    .withAllowMulti(!before.getAllowMulti())
                    .withR(1)
                    .withW(Quorum.allQuorum().getIntValue())
                    .withNotFoundOk(false)
                    .withYoungVClock(33L)
                    .build());
            BucketProperties props = fetch(client, bucket);
            Larder.same(props.getNVal(), 2);
            Larder.same(props.getAllowMulti(), !before.getAllowMulti());
            Larder.same(props.getR(), new Quorum(1));
            Larder.same(props.getW(), Quorum.allQuorum());
            Larder.same(props.getNotFoundOk(), false);
            Larder.same(props.getYoungVClock(), 33L);
            client.execute(new ResetBucketProperties.Builder(bucket).build());
            Larder.same(fetch(client, bucket), before);
        }
    }

    static void aStoredPropertyTakesEffect(RiakClient client) throws Exception {
        Namespace bucket = new Namespace("effect");
        client.execute(new StoreBucketProperties.Builder(bucket).withAllowMulti(true).build());
        Larder.store(client, Larder.at("effect", "k"), "a");
        Larder.store(client, Larder.at("effect", "k"), "b");
        Larder.same(Larder.texts(Larder.fetch(client, Larder.at("effect", "k")).getValues()), List.of("a", "b"));
    }

    static void aBucketInheritsFromItsType(RiakClient client) throws Exception {
        BucketProperties props = fetch(client, new Namespace("many", "heir"));
        Larder.same(props.getNVal(), 1);
        Larder.same(props.getAllowMulti(), true);
        Larder.same(fetch(client, new Namespace("single", "heir")).getAllowMulti(), false);
    }

    static void valuesThatMakeNoSenseAreRefused(RiakClient client) throws Exception {
        Namespace bucket = new Namespace("bad");
        int fallback = Quorum.defaultQuorum().getIntValue();
        StoreBucketProperties quorum = new StoreBucketProperties.Builder(bucket).withNVal(2).withR(fallback).build();
        Larder.refused(client, quorum, "Invalid bucket properties: [{r,not_valid_quorum}]");
        Larder.same(fetch(client, bucket).getNVal(), 3);
    }
}
