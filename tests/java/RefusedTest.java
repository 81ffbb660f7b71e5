import com.basho.riak.client.api.RiakClient;
import com.basho.riak.client.api.commands.buckets.FetchBucketProperties;
import com.basho.riak.client.api.commands.buckets.ListBuckets;
import com.basho.riak.client.api.commands.buckets.StoreBucketProperties;
import com.basho.riak.client.api.commands.datatypes.CounterUpdate;
import com.basho.riak.client.api.commands.datatypes.FetchCounter;
import com.basho.riak.client.api.commands.datatypes.FetchHll;
import com.basho.riak.client.api.commands.datatypes.FetchMap;
import com.basho.riak.client.api.commands.datatypes.FetchSet;
import com.basho.riak.client.api.commands.datatypes.MapUpdate;
import com.basho.riak.client.api.commands.datatypes.SetUpdate;
import com.basho.riak.client.api.commands.datatypes.UpdateCounter;
import com.basho.riak.client.api.commands.datatypes.UpdateMap;
import com.basho.riak.client.api.commands.datatypes.UpdateSet;
import com.basho.riak.client.api.commands.kv.DeleteValue;
import com.basho.riak.client.api.commands.kv.FetchValue;
import com.basho.riak.client.api.commands.kv.ListKeys;
import com.basho.riak.client.api.commands.kv.StoreValue;
import com.basho.riak.client.api.commands.search.FetchIndex;
import com.basho.riak.client.api.commands.search.Search;
import com.basho.riak.client.core.operations.PingOperation;
import com.basho.riak.client.core.query.Location;
import com.basho.riak.client.core.query.Namespace;
import com.basho.riak.client.core.query.RiakObject;
import com.basho.riak.client.core.query.indexes.IndexType;
import com.basho.riak.client.core.query.indexes.RawIndex;
import com.basho.riak.client.core.util.BinaryValue;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;

/** Requests that are refused: the client gets the text of the server at once, and its one connection goes on. */
final class RefusedTest {
    private static final Location TYPED = Larder.at("many", "b", "k");

    public static void main(String[] args) throws Exception {
        Larder.run(RefusedTest.class);
    }

    /** A test that uses one connection. */
    private interface Steps {
        void on(RiakClient client) throws Exception;
    }

    private static void oneConnection(Steps steps) throws Exception {
        RiakClient client = Larder.connect(1);
        steps.on(client);
        PingOperation ping = new PingOperation();
        client.getRiakCluster().execute(ping);
        ping.get(5, TimeUnit.SECONDS);
        Larder.stop(client);
    }

    static void unknownTypesAreNamed(RiakClient unused) throws Exception {
        oneConnection(client -> {
            for (String type : List.of("nosuch", "sleeping")) {
                Location at = Larder.at(type, "b", "k");
                Namespace bucket = at.getNamespace();
                Larder.refused(client, new FetchValue.Builder(at).build(), "no_type");
                StoreValue store = new StoreValue.Builder(Larder.object("v")).withLocation(at).build();
                Larder.refused(client, store, "no_type");
                Larder.refused(client, new DeleteValue.Builder(at).build(), "no_type");
                String text = "No bucket-type named '" + type + "'";
                Larder.refused(client, new FetchBucketProperties.Builder(bucket).build(), text);
                Larder.refused(client, new StoreBucketProperties.Builder(bucket).withNVal(1).build(), text);
                Larder.refused(client, new ListKeys.Builder(bucket).build(), text);
                Larder.refused(client, new ListBuckets.Builder(type).build(), text);
            }
        });
    }

    static void dataTypesNeedTheirBucketType(RiakClient unused) throws Exception {
        oneConnection(client -> {
            String fetch = "`undefined` is not a supported type";
            Larder.refused(client, new FetchCounter.Builder(TYPED).build(), fetch);
            Larder.refused(client, new FetchSet.Builder(TYPED).build(), fetch);
            Larder.refused(client, new FetchMap.Builder(TYPED).build(), fetch);
            Larder.refused(client, new FetchHll.Builder(TYPED).build(), fetch);
            String update = "Bucket datatype `undefined` is not a supported type";
            Larder.refused(client, new UpdateCounter.Builder(TYPED, new CounterUpdate(1)).build(), update);
            Larder.refused(client, new UpdateSet.Builder(TYPED, new SetUpdate().add("a")).build(), update);
            MapUpdate map = new MapUpdate().update("n", new CounterUpdate(1));
            Larder.refused(client, new UpdateMap.Builder(TYPED, map).build(), update);
        });
    }

    static void searchIsUnknown(RiakClient unused) throws Exception {
        oneConnection(client -> {
            Larder.refused(client, new Search.Builder("i", "*:*").build(), "Unknown message code: 27");
            Larder.refused(client, new FetchIndex.Builder("i").build(), "Unknown message code: 54");
        });
    }

    static void namesAndIndexTermsAreChecked(RiakClient unused) throws Exception {
        oneConnection(client -> {
            String name = "n".repeat(12 * 1024 + 1);
            FetchValue key = new FetchValue.Builder(Larder.at("b", name)).build();
            Larder.refused(client, key, "The key is longer than 12288 bytes");
            FetchValue bucket = new FetchValue.Builder(Larder.at(name, "k")).build();
            Larder.refused(client, bucket, "The bucket is longer than 12288 bytes");
            RiakObject odd = Larder.object("v");
            odd.getIndexes().getIndex(RawIndex.named("n", IndexType.INT)).add(BinaryValue.create("x"));
            StoreValue store = new StoreValue.Builder(odd).withLocation(Larder.at("b", "odd")).build();
            Larder.refused(client, store, "{precommit_fail,[{field_parsing_failed,{<<\"n_int\">>,<<\"x\">>}}]}");
            Larder.check(Larder.fetch(client, Larder.at("b", "odd")).isNotFound(), "found");
        });
    }

    static void objectsAboveTheLimitAreRefused(RiakClient unused) throws Exception {
        oneConnection(client -> {
            for (int mebibytes : new int[] {16, 17, 60}) {
                byte[] bytes = new byte[(mebibytes << 20) + 1];
                RiakObject large = new RiakObject().setContentType("x/y").setValue(BinaryValue.unsafeCreate(bytes));
                Location at = Larder.at("large", "" + mebibytes);
                try {
                    client.execute(new StoreValue.Builder(large).withLocation(at).build());
                    throw new AssertionError(mebibytes + " MiB were stored");
                } catch (ExecutionException refused) {
                    String text = refused.getCause().getMessage();
                    Larder.check(text.matches("\\{too_large,\\d+\\}"), "refused with " + refused);
                }
                Larder.check(Larder.fetch(client, at).isNotFound(), "found");
            }
        });
    }
}
