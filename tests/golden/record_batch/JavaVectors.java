// Writes record batches with Kafka's own Java client, and describes record batches as that client
// reads them. Run as a single source file; see README.md.
//
//   JavaVectors write FOLDER        one NAME.bin per case, and java.json with what it holds
//   JavaVectors read FILE...        the same description of any files, on stdout
//   JavaVectors murmur2             hashes and partitions of keys, on stdout

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.StringJoiner;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.message.LeaderChangeMessage;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.DefaultRecordBatch;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.utils.ByteBufferOutputStream;
import org.apache.kafka.common.utils.Utils;

public class JavaVectors {
    static final long T = 1_700_000_000_000L;
    static final int INLINE_BYTES = 64;

    public static void main(String[] args) throws Exception {
        switch (args[0]) {
            case "write" -> write(Path.of(args[1]));
            case "read" -> System.out.println(read(Arrays.asList(args).subList(1, args.length)));
            case "murmur2" -> System.out.println(murmur2());
            default -> throw new IllegalArgumentException(args[0]);
        }
    }

    static Map<String, Compression> codecs() {
        Map<String, Compression> codecs = new LinkedHashMap<>();
        codecs.put("none", Compression.NONE);
        codecs.put("gzip", Compression.gzip().build());
        codecs.put("snappy", Compression.snappy().build());
        codecs.put("lz4", Compression.lz4().build());
        codecs.put("zstd", Compression.zstd().build());
        return codecs;
    }

    static void write(Path folder) throws Exception {
        Map<String, ByteBuffer> cases = new LinkedHashMap<>();
        for (Map.Entry<String, Compression> codec : codecs().entrySet()) {
            String name = codec.getKey();
            cases.put("mixed-" + name, batch(codec.getValue(), 0, mixed()));
            if (codec.getValue() != Compression.NONE)
                cases.put("blocks-" + name, batch(codec.getValue(), 1000, blocks()));
            cases.put("append-time-" + name, appendTime(codec.getValue()));
        }
        Compression none = Compression.NONE;
        Compression zstd = Compression.zstd().build();
        cases.put("one-record", batch(none, 42, new SimpleRecord(T, bytes("k"), bytes("v"))));
        cases.put("no-timestamp", batch(none, 0, new SimpleRecord(-1L, null, bytes("v"))));
        cases.put("idempotent", producer(none, 17, 77, (short) 3, 12, false));
        cases.put("transactional", producer(zstd, 17, 78, (short) 4, 0, true));
        cases.put("sequence-wraps", producer(none, 17, 79, (short) 0, Integer.MAX_VALUE - 1, false));
        cases.put("commit", marker(ControlRecordType.COMMIT, 9));
        cases.put("abort", marker(ControlRecordType.ABORT, 0));
        cases.put("leader-change", leaderChange());
        cases.put("timestamps-fall", batch(none, 0, timestamps(T, T - 1, T - 1_000_000_000L, 0, T)));
        cases.put("timestamps-far", batch(none, 0, timestamps(0, Long.MAX_VALUE, 1, 1L << 40)));
        cases.put("long-fields", batch(none, 1L << 40, longFields()));
        cases.put("gaps", gaps(none));
        cases.put("gaps-lz4", gaps(Compression.lz4().build()));
        cases.put("delete-horizon", deleteHorizon());
        cases.put("empty", empty());
        cases.put("last-offsets", batch(none, Long.MAX_VALUE - 5, timestamps(T, T + 1)));
        cases.put("several", join(cases, "mixed-none", "mixed-zstd", "commit", "gaps", "empty"));
        Map<String, String> described = new LinkedHashMap<>();
        for (Map.Entry<String, ByteBuffer> one : cases.entrySet()) {
            save(folder.resolve(one.getKey() + ".bin"), one.getValue());
            described.put(one.getKey(), describe(one.getValue().duplicate()));
        }
        // What must be refused: the formats before this one.
        for (byte magic = 0; magic <= 1; magic++) {
            save(folder.resolve("magic-" + magic + ".bin"), MemoryRecords.withRecords(
                magic, none, new SimpleRecord(T, bytes("k"), bytes("v"))).buffer());
        }
        Files.writeString(folder.resolve("java.json"), object(described) + "\n");
    }

    static SimpleRecord[] mixed() {
        Header[] headers = {
            new RecordHeader("trace", bytes("1")), new RecordHeader("trace", bytes("2")),
            new RecordHeader("none", null), new RecordHeader("", new byte[0]),
            new RecordHeader("größe-\uD83D\uDCCF", new byte[] {0, -1, -128})};
        return new SimpleRecord[] {
            new SimpleRecord(T, bytes("key"), bytes("value")),
            new SimpleRecord(T + 1, null, bytes("without key")),
            new SimpleRecord(T + 2, bytes("tombstone"), null),
            new SimpleRecord(T + 2, null, (byte[]) null),
            new SimpleRecord(T + 3, new byte[0], new byte[0]),
            new SimpleRecord(T + 300, bytes("with"), bytes("headers"), headers),
            new SimpleRecord(T + 70_000, new byte[] {0, 1, -1}, pattern(300)),
            new SimpleRecord(T + 70_000, bytes("one"), bytes("header"),
                new Header[] {new RecordHeader("h", pattern(200))}),
        };
    }

    static SimpleRecord[] blocks() {
        return new SimpleRecord[] {
            new SimpleRecord(T, bytes("big"), pattern(200_000)),
            new SimpleRecord(T, pattern(70_000), bytes("small")),
            new SimpleRecord(T, bytes("last"), pattern(33_000)),
        };
    }

    static SimpleRecord[] longFields() {
        return new SimpleRecord[] {
            new SimpleRecord(T, pattern(63), pattern(64)),
            new SimpleRecord(T, pattern(8191), pattern(8192)),
            new SimpleRecord(T, pattern(20_000), pattern(5),
                new Header[] {new RecordHeader("x".repeat(9000), pattern(9001))}),
        };
    }

    static SimpleRecord[] timestamps(long... timestamps) {
        return Arrays.stream(timestamps)
            .mapToObj(t -> new SimpleRecord(t, null, bytes("t")))
            .toArray(SimpleRecord[]::new);
    }

    static ByteBuffer batch(Compression codec, long baseOffset, SimpleRecord... records) {
        return MemoryRecords.withRecords(baseOffset, codec, 5, records).buffer();
    }

    static ByteBuffer appendTime(Compression codec) {
        MemoryRecordsBuilder builder = MemoryRecords.builder(
            ByteBuffer.allocate(1 << 16), RecordBatch.CURRENT_MAGIC_VALUE, codec,
            TimestampType.LOG_APPEND_TIME, 7, T + 5000);
        for (SimpleRecord record : mixed())
            builder.append(record);
        return builder.build().buffer();
    }

    static ByteBuffer producer(
            Compression codec, long baseOffset, long id, short epoch, int sequence, boolean txn) {
        MemoryRecordsBuilder builder = MemoryRecords.builder(
            ByteBuffer.allocate(1 << 16), RecordBatch.CURRENT_MAGIC_VALUE, codec,
            TimestampType.CREATE_TIME, baseOffset, -1L, id, epoch, sequence, txn, 6);
        for (SimpleRecord record : mixed())
            builder.append(record);
        return builder.build().buffer();
    }

    static ByteBuffer marker(ControlRecordType type, int coordinatorEpoch) {
        return MemoryRecords.withEndTransactionMarker(
            99, T, 6, 78, (short) 4, new EndTransactionMarker(type, coordinatorEpoch)).buffer();
    }

    static ByteBuffer leaderChange() {
        return MemoryRecords.withLeaderChangeMessage(
            5, T, 3, ByteBuffer.allocate(256), new LeaderChangeMessage().setLeaderId(1)).buffer();
    }

    static ByteBuffer gaps(Compression codec) {
        MemoryRecordsBuilder builder = MemoryRecords.builder(
            ByteBuffer.allocate(1 << 16), RecordBatch.CURRENT_MAGIC_VALUE, codec,
            TimestampType.CREATE_TIME, 100, -1L, 5, (short) 1, 40, false, 2);
        SimpleRecord[] records = mixed();
        long[] offsets = {103, 104, 180, 400_100, 2_000_000_000L};
        for (int i = 0; i < offsets.length; i++)
            builder.appendWithOffset(offsets[i], records[i]);
        builder.overrideLastOffset(2_000_000_007L);
        return builder.build().buffer();
    }

    static ByteBuffer deleteHorizon() {
        MemoryRecordsBuilder builder = new MemoryRecordsBuilder(
            new ByteBufferOutputStream(ByteBuffer.allocate(1 << 16)),
            RecordBatch.CURRENT_MAGIC_VALUE, Compression.NONE, TimestampType.CREATE_TIME, 10, -1L,
            -1L, (short) -1, -1, false, false, 2, 1 << 16, T + 86_400_000L);
        for (SimpleRecord record : mixed())
            builder.append(record);
        return builder.build().buffer();
    }

    static ByteBuffer empty() {
        ByteBuffer buffer = ByteBuffer.allocate(DefaultRecordBatch.RECORD_BATCH_OVERHEAD);
        DefaultRecordBatch.writeEmptyHeader(buffer, RecordBatch.CURRENT_MAGIC_VALUE, 5, (short) 1,
            44, 3_000, 3_009, 2, TimestampType.CREATE_TIME, T, false, false);
        buffer.flip();
        return buffer;
    }

    static ByteBuffer join(Map<String, ByteBuffer> cases, String... names) {
        ByteBuffer all = ByteBuffer.allocate(1 << 16);
        for (String name : names)
            all.put(cases.get(name).duplicate());
        return all.flip();
    }

    static String read(List<String> files) throws IOException {
        Map<String, String> described = new LinkedHashMap<>();
        for (String file : files)
            described.put(file, describe(ByteBuffer.wrap(Files.readAllBytes(Path.of(file)))));
        return object(described);
    }

    static String describe(ByteBuffer buffer) {
        StringJoiner batches = new StringJoiner(",\n  ", "[\n  ", "\n ]");
        for (MutableRecordBatch batch : MemoryRecords.readableRecords(buffer).batches()) {
            batch.ensureValid();
            Map<String, String> fields = new LinkedHashMap<>();
            fields.put("size_bytes", "" + batch.sizeInBytes());
            fields.put("base_offset", "" + batch.baseOffset());
            fields.put("last_offset", "" + batch.lastOffset());
            fields.put("leader_epoch", "" + batch.partitionLeaderEpoch());
            fields.put("codec", "" + batch.compressionType().id);
            fields.put("timestamp_type", "" + batch.timestampType().id);
            fields.put("is_transactional", "" + batch.isTransactional());
            fields.put("is_control", "" + batch.isControlBatch());
            fields.put("delete_horizon_ms",
                batch.deleteHorizonMs().isPresent() ? "" + batch.deleteHorizonMs().getAsLong() : "null");
            fields.put("base_timestamp", "" + ((DefaultRecordBatch) batch).baseTimestamp());
            fields.put("max_timestamp", "" + batch.maxTimestamp());
            fields.put("producer_id", "" + batch.producerId());
            fields.put("producer_epoch", "" + batch.producerEpoch());
            fields.put("base_sequence", "" + batch.baseSequence());
            fields.put("last_sequence", "" + batch.lastSequence());
            fields.put("record_count", "" + batch.countOrNull());
            StringJoiner records = new StringJoiner(",\n    ", "[\n    ", "]");
            for (Record record : batch)
                records.add(describe(record));
            fields.put("records", records.toString());
            batches.add(object(fields).replace("\n", ""));
        }
        return batches.toString();
    }

    static String describe(Record record) {
        Map<String, String> fields = new LinkedHashMap<>();
        fields.put("offset", "" + record.offset());
        fields.put("timestamp", "" + record.timestamp());
        fields.put("key", octets(record.hasKey() ? Utils.toArray(record.key()) : null));
        fields.put("value", octets(record.hasValue() ? Utils.toArray(record.value()) : null));
        StringJoiner headers = new StringJoiner(", ", "[", "]");
        for (Header header : record.headers())
            headers.add("[" + octets(bytes(header.key())) + ", " + octets(header.value()) + "]");
        fields.put("headers", headers.toString());
        return object(fields).replace("\n", "");
    }

    static String murmur2() {
        String[] keys = {"", "a", "21", "abc", "foobar", "a-little-bit-long-string",
            "a-little-bit-longer-string", "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8",
            "größe", "UA", "N14228", "\uD83D\uDCCF"};
        StringJoiner lines = new StringJoiner(",\n ", "[\n ", "\n]");
        for (int i = 0; i < keys.length + 8; i++) {
            byte[] key = i < keys.length ? bytes(keys[i]) : pattern(1 + 37 * (i - keys.length));
            Map<String, String> fields = new LinkedHashMap<>();
            fields.put("key", "\"" + HexFormat.of().formatHex(key) + "\"");
            fields.put("murmur2", "" + Utils.murmur2(key));
            for (int partitions : new int[] {1, 3, 12, 1000})
                fields.put("of_" + partitions, "" + BuiltInPartitioner.partitionForKey(key, partitions));
            lines.add(object(fields).replace("\n", ""));
        }
        return lines.toString();
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static byte[] pattern(int length) {
        byte[] pattern = new byte[length];
        for (int i = 0; i < length; i++)
            pattern[i] = (byte) (i * 7 + i / 256);
        return pattern;
    }

    static String octets(byte[] octets) {
        if (octets == null)
            return "null";
        if (octets.length <= INLINE_BYTES)
            return "\"" + HexFormat.of().formatHex(octets) + "\"";
        try {
            byte[] digest = MessageDigest.getInstance("SHA-256").digest(octets);
            return "{\"length\": " + octets.length + ", \"sha256\": \""
                + HexFormat.of().formatHex(digest) + "\"}";
        } catch (java.security.NoSuchAlgorithmException error) {
            throw new IllegalStateException(error);
        }
    }

    static String object(Map<String, String> fields) {
        StringJoiner object = new StringJoiner(",\n ", "{\n ", "\n}");
        fields.forEach((name, value) -> object.add("\"" + name + "\": " + value));
        return object.toString();
    }

    static void save(Path file, ByteBuffer buffer) throws IOException {
        Files.write(file, Utils.toArray(buffer.duplicate()));
    }
}
