import com.basho.riak.client.api.RiakClient;
import com.basho.riak.client.api.commands.kv.StoreValue;
import com.basho.riak.client.api.commands.mapreduce.BucketKeyMapReduce;
import com.basho.riak.client.api.commands.mapreduce.BucketMapReduce;
import com.basho.riak.client.api.commands.mapreduce.MapReduce;
import com.basho.riak.client.api.commands.mapreduce.filters.EndsWithFilter;
import com.basho.riak.client.core.query.Location;
import com.basho.riak.client.core.query.Namespace;
import com.basho.riak.client.core.query.functions.Function;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;

/** MapReduce by the functions that Riak has built in. */
final class MapReduceTest {
    private static final Function VALUE = Function.newErlangFunction("riak_kv_mapreduce", "map_object_value");
    private static final Function JSON = Function.newNamedJsFunction("Riak.mapValuesJson");

    public static void main(String[] args) throws Exception {
        Larder.run(MapReduceTest.class);
    }

    private static Namespace fill(RiakClient client, String type, String bucket) throws Exception {
        Namespace namespace = new Namespace(type, bucket);
        for (int number = 0; number < 30; number++) {
            Location at = new Location(namespace, "k-" + number);
            client.execute(new StoreValue.Builder(Larder.object(Integer.toString(number))).withLocation(at).build());
        }
        return namespace;
    }

    private static List<Integer> sorted(Collection<Integer> values) {
        List<Integer> list = new ArrayList<>(values);
        list.sort(null);
        return list;
    }

    static void aBucketIsCountedAndSummed(RiakClient client) throws Exception {
        for (String type : new String[] {"default", "many"}) {
            BucketMapReduce query = new BucketMapReduce.Builder()
                    .withNamespace(fill(client, type, "mapred"))
                    .withMapPhase(VALUE)
                    .withReducePhase(Function.newErlangFunction("riak_kv_mapreduce", "reduce_string_to_integer"))
                    .withReducePhase(Function.newErlangFunction("riak_kv_mapreduce", "reduce_sum"), true)
                    .build();
            MapReduce.Response response = client.execute(query);
            Larder.same(sorted(response.getResultsFromAllPhases(Integer.class)), List.of(435));
        }
    }

    static void keysAndFiltersChooseInputs(RiakClient client) throws Exception {
        Namespace bucket = fill(client, "default", "chosen");
        BucketKeyMapReduce keys = new BucketKeyMapReduce.Builder()
                .withLocation(new Location(bucket, "k-3"))
                .withLocation(new Location(bucket, "k-4"))
                .withMapPhase(JSON, true)
                .build();
        Larder.same(sorted(client.execute(keys).getResultsFromAllPhases(Integer.class)), List.of(3, 4));
        BucketMapReduce filtered = new BucketMapReduce.Builder()
                .withNamespace(bucket)
                .withKeyFilter(new EndsWithFilter("7"))
                .withMapPhase(JSON, true)
                .build();
        Larder.same(sorted(client.execute(filtered).getResultsFromAllPhases(Integer.class)), List.of(7, 17, 27));
    }

    static void anUnknownFunctionIsNamed(RiakClient client) throws Exception {
        BucketMapReduce query = new BucketMapReduce.Builder()
                .withNamespace(new Namespace("b"))
                .withMapPhase(Function.newErlangFunction("riak_kv_mapreduce", "nosuch"), true)
                .build();
        Larder.refused(client, query, "Phase 0: PhaseSpec specifies riak_kv_mapreduce:nosuch/3, which is not exported");
    }
}
