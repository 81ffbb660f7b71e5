import com.basho.riak.client.api.RiakClient;
import com.basho.riak.client.api.commands.datatypes.Context;
import com.basho.riak.client.api.commands.datatypes.CounterUpdate;
import com.basho.riak.client.api.commands.datatypes.FetchCounter;
import com.basho.riak.client.api.commands.datatypes.FetchHll;
import com.basho.riak.client.api.commands.datatypes.FetchMap;
import com.basho.riak.client.api.commands.datatypes.FetchSet;
import com.basho.riak.client.api.commands.datatypes.FlagUpdate;
import com.basho.riak.client.api.commands.datatypes.HllUpdate;
import com.basho.riak.client.api.commands.datatypes.MapUpdate;
import com.basho.riak.client.api.commands.datatypes.RegisterUpdate;
import com.basho.riak.client.api.commands.datatypes.SetUpdate;
import com.basho.riak.client.api.commands.datatypes.UpdateCounter;
import com.basho.riak.client.api.commands.datatypes.UpdateHll;
import com.basho.riak.client.api.commands.datatypes.UpdateMap;
import com.basho.riak.client.api.commands.datatypes.UpdateSet;
import com.basho.riak.client.core.FutureOperation;
import com.basho.riak.client.core.RiakMessage;
import com.basho.riak.client.core.query.Location;
import com.basho.riak.client.core.query.crdt.types.RiakMap;
import com.basho.riak.client.core.util.BinaryValue;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import shaded.com.basho.riak.protobuf.RiakDtPB.DtFetchReq;
import shaded.com.basho.riak.protobuf.RiakDtPB.DtFetchResp;
import shaded.com.basho.riak.protobuf.RiakDtPB.DtOp;
import shaded.com.basho.riak.protobuf.RiakDtPB.DtUpdateReq;
import shaded.com.basho.riak.protobuf.RiakDtPB.DtUpdateResp;
import shaded.com.basho.riak.protobuf.RiakDtPB.GSetOp;
import shaded.com.google.protobuf.ByteString;

/** Data types: counters, sets, sets that only grow, maps, HyperLogLogs. */
final class DatatypesTest {
    private static final byte FETCH = 80;
    private static final byte UPDATE = 82;

    public static void main(String[] args) throws Exception {
        Larder.run(DatatypesTest.class);
    }

    private static Set<BinaryValue> elements(String... texts) {
        Set<BinaryValue> elements = new java.util.HashSet<>();
        for (String text : texts) {
            elements.add(BinaryValue.create(text));
        }
        return elements;
    }

    static void countersCount(RiakClient client) throws Exception {
        Location at = Larder.at("counters", "data", "c");
        client.execute(new UpdateCounter.Builder(at, new CounterUpdate(5)).build());
        UpdateCounter less = new UpdateCounter.Builder(at, new CounterUpdate(-7)).withReturnDatatype(true).build();
        Larder.same(client.execute(less).getDatatype().view(), -2L);
        Larder.same(client.execute(new FetchCounter.Builder(at).build()).getDatatype().view(), -2L);
    }

    static void setsTakeAndLoseElements(RiakClient client) throws Exception {
        Location at = Larder.at("sets", "data", "s");
        SetUpdate some = new SetUpdate().add("a").add("b").add("c");
        client.execute(new UpdateSet.Builder(at, some).build());
        FetchSet.Response found = client.execute(new FetchSet.Builder(at).build());
        Larder.same(found.getDatatype().view(), elements("a", "b", "c"));
        UpdateSet less = new UpdateSet.Builder(at, new SetUpdate().remove("b"))
                .withContext(found.getContext())
                .withReturnDatatype(true)
                .build();
        Larder.same(client.execute(less).getDatatype().view(), elements("a", "c"));
    }

    static void setsThatOnlyGrowTakeElements(RiakClient client) throws Exception {
        Larder.same(addToGset(client, "g", "b", "a"), Arrays.asList("a", "b"));
        Larder.same(addToGset(client, "g", "c", "a"), Arrays.asList("a", "b", "c"));
        DtFetchReq request = DtFetchReq.newBuilder()
                .setType(bytes("gsets"))
                .setBucket(bytes("data"))
                .setKey(bytes("g"))
                .build();
        DtFetchResp found = DtFetchResp.parseFrom(send(client, FETCH, request.toByteArray()));
        Larder.same(found.getType(), DtFetchResp.DataType.GSET);
        Larder.same(texts(found.getValue().getGsetValueList()), Arrays.asList("a", "b", "c"));
    }

    /** Adds to a set that only grows, and returns it. The client has the messages of such sets, and no command. */
    private static List<String> addToGset(RiakClient client, String key, String... elements) throws Exception {
        GSetOp.Builder adds = GSetOp.newBuilder();
        for (String element : elements) {
            adds.addAdds(bytes(element));
        }
        DtUpdateReq request = DtUpdateReq.newBuilder()
                .setType(bytes("gsets"))
                .setBucket(bytes("data"))
                .setKey(bytes(key))
                .setOp(DtOp.newBuilder().setGsetOp(adds))
                .setReturnBody(true)
                .build();
        return texts(DtUpdateResp.parseFrom(send(client, UPDATE, request.toByteArray())).getGsetValueList());
    }

    private static ByteString bytes(String text) {
        return ByteString.copyFromUtf8(text);
    }

    private static List<String> texts(List<ByteString> elements) {
        List<String> texts = new ArrayList<>();
        for (ByteString element : elements) {
            texts.add(element.toStringUtf8());
        }
        return texts;
    }

    /** Sends a message through the client, and returns that of the answer, whose code is the next one. */
    private static byte[] send(RiakClient client, byte code, byte[] message) throws Exception {
        FutureOperation<byte[], byte[], Void> operation = new FutureOperation<byte[], byte[], Void>() {
            @Override
            protected byte[] convert(List<byte[]> answers) {
                return answers.get(0);
            }

            @Override
            protected RiakMessage createChannelMessage() {
                return new RiakMessage(code, message);
            }

            @Override
            protected byte[] decode(RiakMessage answer) {
                Larder.same((int) answer.getCode(), code + 1);
                return answer.getData();
            }

            @Override
            public Void getQueryInfo() {
                return null;
            }
        };
        return client.getRiakCluster().execute(operation).get(10, TimeUnit.SECONDS);
    }

    static void anAdditionSurvivesARemovalThatDidNotSeeIt(RiakClient client) throws Exception {
        Location at = Larder.at("sets", "data", "race");
        client.execute(new UpdateSet.Builder(at, new SetUpdate().add("x")).build());
        Context seen = client.execute(new FetchSet.Builder(at).build()).getContext();
        client.execute(new UpdateSet.Builder(at, new SetUpdate().add("x")).build());
        client.execute(new UpdateSet.Builder(at, new SetUpdate().remove("x")).withContext(seen).build());
        Larder.same(client.execute(new FetchSet.Builder(at).build()).getDatatype().view(), elements("x"));
    }

    static void mapsHoldValuesOfEveryType(RiakClient client) throws Exception {
        Location at = Larder.at("maps", "data", "m");
        MapUpdate some = new MapUpdate()
                .update("visits", new CounterUpdate(2))
                .update("tags", new SetUpdate().add("x").add("y"))
                .update("name", new RegisterUpdate("Ann"))
                .update("vip", new FlagUpdate(true))
                .update("address", new MapUpdate().update("zip", new RegisterUpdate("1")));
        client.execute(new UpdateMap.Builder(at, some).build());
        FetchMap.Response found = client.execute(new FetchMap.Builder(at).build());
        RiakMap map = found.getDatatype();
        Larder.same(map.getCounter("visits").view(), 2L);
        Larder.same(map.getSet("tags").view(), elements("x", "y"));
        Larder.same(map.getRegister("name").view(), BinaryValue.create("Ann"));
        Larder.same(map.getFlag("vip").view(), true);
        Larder.same(map.getMap("address").getRegister("zip").view(), BinaryValue.create("1"));
        MapUpdate less = new MapUpdate()
                .update("tags", new SetUpdate().remove("x"))
                .update("vip", new FlagUpdate(false))
                .removeRegister("name");
        UpdateMap update = new UpdateMap.Builder(at, less)
                .withContext(found.getContext())
                .withReturnDatatype(true)
                .build();
        RiakMap back = client.execute(update).getDatatype();
        Larder.same(back.getSet("tags").view(), elements("y"));
        Larder.same(back.getFlag("vip").view(), false);
        Larder.same(back.getRegister("name"), null);
    }

    static void hyperLogLogsEstimate(RiakClient client) throws Exception {
        Location at = Larder.at("hlls", "data", "h");
        HllUpdate some = new HllUpdate();
        for (int visitor = 0; visitor < 1000; visitor++) {
            some.add("visitor " + visitor);
        }
        client.execute(new UpdateHll.Builder(at, some).build());
        long estimate = client.execute(new FetchHll.Builder(at).build()).getCardinality();
        Larder.check(Math.abs(estimate - 1000) < 50, "estimated " + estimate);
    }
}
