import java.net.URI;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.Arrays;
import java.util.List;
import software.amazon.awssdk.auth.credentials.AwsBasicCredentials;
import software.amazon.awssdk.auth.credentials.StaticCredentialsProvider;
import software.amazon.awssdk.core.sync.RequestBody;
import software.amazon.awssdk.regions.Region;
import software.amazon.awssdk.services.s3.S3Client;
import software.amazon.awssdk.services.s3.model.CompletedMultipartUpload;
import software.amazon.awssdk.services.s3.model.CompletedPart;
import software.amazon.awssdk.services.s3.model.HeadObjectResponse;
import software.amazon.awssdk.services.s3.model.NoSuchKeyException;
import software.amazon.awssdk.services.s3.model.ObjectLockLegalHoldStatus;
import software.amazon.awssdk.services.s3.model.ObjectLockMode;
import software.amazon.awssdk.services.s3.model.S3Exception;
import software.amazon.awssdk.services.s3.model.ServerSideEncryption;

/** The S3 SDK for Java, version 2, unmodified: objects, parts, encryption and locks. */
public final class S3Test {
    private static final int PART = 5 * 1024 * 1024;

    private S3Test() {}

    /** Runs all. */
    public static void main(String[] args) throws Exception {
        StaticCredentialsProvider credentials = StaticCredentialsProvider.create(
                AwsBasicCredentials.create(System.getenv("LARDER_S3_KEY"), System.getenv("LARDER_S3_SECRET")));
        try (S3Client s3 = S3Client.builder()
                .endpointOverride(URI.create("http://127.0.0.1:" + System.getenv("LARDER_S3_PORT")))
                .region(Region.US_EAST_1)
                .credentialsProvider(credentials)
                .forcePathStyle(true)
                .build()) {
            objects(s3);
            System.out.println("ok    objects");
            parts(s3);
            System.out.println("ok    parts");
            locks(s3);
            System.out.println("ok    locks");
        }
    }

    private static void objects(S3Client s3) {
        s3.createBucket(create -> create.bucket("sdk-java"));
        String tag = s3.putObject(put -> put.bucket("sdk-java").key("a/b c"), RequestBody.fromString("small")).eTag();
        check(tag.equals("\"eb5c1399a871211c7e7ed732d15e3a8b\""), tag);
        String text = s3.getObjectAsBytes(get -> get.bucket("sdk-java").key("a/b c")).asUtf8String();
        check(text.equals("small"), text);
        s3.copyObject(copy -> copy.sourceBucket("sdk-java").sourceKey("a/b c").destinationBucket("sdk-java")
                .destinationKey("copy").serverSideEncryption(ServerSideEncryption.AES256));
        HeadObjectResponse head = s3.headObject(ask -> ask.bucket("sdk-java").key("copy"));
        check(head.serverSideEncryption() == ServerSideEncryption.AES256, head);
        check(s3.listObjectsV2(list -> list.bucket("sdk-java")).contents().size() == 2, "two objects");
        for (String key : List.of("a/b c", "copy")) {
            s3.deleteObject(delete -> delete.bucket("sdk-java").key(key));
        }
        try {
            s3.getObjectAsBytes(get -> get.bucket("sdk-java").key("copy"));
            throw new AssertionError("it is still there");
        } catch (NoSuchKeyException expected) {
            s3.deleteBucket(delete -> delete.bucket("sdk-java"));
        }
    }

    private static void parts(S3Client s3) {
        s3.createBucket(create -> create.bucket("sdk-java-parts"));
        String upload = s3.createMultipartUpload(create -> create.bucket("sdk-java-parts").key("large")
                .serverSideEncryption(ServerSideEncryption.AES256)).uploadId();
        byte[] whole = new byte[PART + 1000];
        for (int at = 0; at < whole.length; at++) {
            whole[at] = (byte) (at * 31 + at / 251);
        }
        List<byte[]> bodies = List.of(Arrays.copyOf(whole, PART), Arrays.copyOfRange(whole, PART, whole.length));
        CompletedPart[] parts = new CompletedPart[bodies.size()];
        for (int at = 0; at < parts.length; at++) {
            int number = at + 1;
            String tag = s3.uploadPart(
                    part -> part.bucket("sdk-java-parts").key("large").uploadId(upload).partNumber(number),
                    RequestBody.fromBytes(bodies.get(at))).eTag();
            parts[at] = CompletedPart.builder().partNumber(number).eTag(tag).build();
        }
        s3.completeMultipartUpload(complete -> complete.bucket("sdk-java-parts").key("large").uploadId(upload)
                .multipartUpload(CompletedMultipartUpload.builder().parts(parts).build()));
        byte[] found = s3.getObjectAsBytes(get -> get.bucket("sdk-java-parts").key("large")).asByteArray();
        check(Arrays.equals(found, whole), found.length);
    }

    private static void locks(S3Client s3) {
        s3.createBucket(create -> create.bucket("sdk-java-locked").objectLockEnabledForBucket(true));
        Instant until = Instant.now().plus(1, ChronoUnit.HOURS).truncatedTo(ChronoUnit.SECONDS);
        String version = s3.putObject(put -> put.bucket("sdk-java-locked").key("ledger")
                .objectLockMode(ObjectLockMode.GOVERNANCE).objectLockRetainUntilDate(until)
                .objectLockLegalHoldStatus(ObjectLockLegalHoldStatus.ON), RequestBody.fromString("gold")).versionId();
        HeadObjectResponse head = s3.headObject(ask -> ask.bucket("sdk-java-locked").key("ledger"));
        check(head.objectLockRetainUntilDate().equals(until), head);
        check(head.objectLockLegalHoldStatus() == ObjectLockLegalHoldStatus.ON, head);
        for (boolean bypass : new boolean[] {false, true}) {
            try {
                s3.deleteObject(delete -> delete.bucket("sdk-java-locked").key("ledger").versionId(version)
                        .bypassGovernanceRetention(bypass));
                throw new AssertionError("a held version was deleted");
            } catch (S3Exception refused) {
                check(refused.awsErrorDetails().errorCode().equals("AccessDenied"), refused);
            }
        }
        s3.putObjectLegalHold(put -> put.bucket("sdk-java-locked").key("ledger")
                .legalHold(hold -> hold.status(ObjectLockLegalHoldStatus.OFF)));
        s3.deleteObject(delete -> delete.bucket("sdk-java-locked").key("ledger").versionId(version)
                .bypassGovernanceRetention(true));
        s3.deleteBucket(delete -> delete.bucket("sdk-java-locked"));
    }

    private static void check(boolean holds, Object found) {
        if (!holds) {
            throw new AssertionError(String.valueOf(found));
        }
    }
}
