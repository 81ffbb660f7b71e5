// The S3 SDK for Go, version 2, unmodified: what its helpers do besides single calls.
package main

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/feature/s3/manager"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
)

const (
	part = 5 * 1024 * 1024
	wait = 10 * time.Second
)

var client = s3.New(s3.Options{
	BaseEndpoint: aws.String("http://127.0.0.1:" + os.Getenv("LARDER_S3_PORT")),
	Region:       "us-east-1",
	Credentials:  credentials.NewStaticCredentialsProvider(os.Getenv("LARDER_S3_KEY"), os.Getenv("LARDER_S3_SECRET"), ""),
	UsePathStyle: true,
	Retryer:      aws.NopRetryer{},
	// As a program without settings has them.
	RequestChecksumCalculation: aws.RequestChecksumCalculationWhenSupported,
	ResponseChecksumValidation: aws.ResponseChecksumValidationWhenSupported,
})

func main() {
	for _, test := range []struct {
		name string
		run  func(context.Context)
	}{
		{"objects_are_put_read_copied_and_deleted", objects},
		{"errors_have_their_types", errorTypes},
		{"writes_on_conditions_are_refused", conditions},
		{"waiters_end", waiters},
		{"paginators_see_each_item_once", paginators},
		{"large_bodies_go_in_parts_and_come_in_ranges", transfers},
		{"presigned_links_work_without_credentials", links},
		{"versions_are_locked_until_they_are_released", locks},
		{"objects_are_encrypted_with_keys_of_their_own", encryption},
	} {
		run(test.name, test.run)
	}
}

// run ends the program at the first test that fails.
func run(name string, test func(context.Context)) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	defer func() {
		if failure := recover(); failure != nil {
			fmt.Printf("FAIL  %s: %v\n%s\n", name, failure, debug.Stack())
			os.Exit(1)
		}
	}()
	test(ctx)
	fmt.Println("ok   ", name)
}

// must returns the value of a call that succeeds.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func equal[T comparable](got, want T) {
	if got != want {
		panic(fmt.Sprintf("got %v, not %v", got, want))
	}
}

// fails returns the error of a call, which has to be of this type.
func fails[E error, T any](_ T, err error) E {
	var found E
	if !errors.As(err, &found) {
		panic(fmt.Sprintf("got %v, not a %T", err, found))
	}
	return found
}

// refused checks the code of the error of a call.
func refused[T any](code string, value T, err error) {
	equal(fails[smithy.APIError](value, err).ErrorCode(), code)
}

func bucket(ctx context.Context, name string) *string {
	must(client.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: &name}))
	return &name
}

func put(ctx context.Context, in *string, key, body string) *s3.PutObjectOutput {
	return must(client.PutObject(ctx, &s3.PutObjectInput{Bucket: in, Key: &key, Body: strings.NewReader(body)}))
}

// text reads a body to its end, where the SDK compares the checksum.
func text(body io.ReadCloser) string {
	defer body.Close()
	return string(must(io.ReadAll(body)))
}

// sample has bytes that differ from place to place.
func sample(length int) []byte {
	body := make([]byte, length)
	for at := range body {
		body[at] = byte(at*31 + at/251)
	}
	return body
}

func objects(ctx context.Context) {
	in := bucket(ctx, "sdk-go")
	stored := must(client.PutObject(ctx, &s3.PutObjectInput{
		Bucket: in, Key: aws.String("a/b c+ü"), Body: strings.NewReader("small"), ContentType: aws.String("text/plain"),
		Metadata: map[string]string{"colour": "blue"}, Tagging: aws.String("kind=small"), Expires: aws.Time(time.Unix(2e9, 0)),
	}))
	equal(*stored.ETag, `"eb5c1399a871211c7e7ed732d15e3a8b"`)
	equal(*stored.ChecksumCRC32, "dUXqEw==")
	got := must(client.GetObject(ctx, &s3.GetObjectInput{Bucket: in, Key: aws.String("a/b c+ü")}))
	equal(text(got.Body), "small")
	equal(*got.ChecksumCRC32, *stored.ChecksumCRC32)
	equal(got.ChecksumType, types.ChecksumTypeFullObject)
	equal(got.Metadata["colour"], "blue")
	equal(*got.TagCount, 1)
	equal(*got.ExpiresString, "Wed, 18 May 2033 03:33:20 GMT")
	copied := must(client.CopyObject(ctx, &s3.CopyObjectInput{
		Bucket: in, Key: aws.String("copy"), CopySource: aws.String("sdk-go/a/b%20c%2B%C3%BC"),
		ChecksumAlgorithm: types.ChecksumAlgorithmSha256,
	}))
	equal(*copied.CopyObjectResult.ETag, *stored.ETag)
	equal(len(*copied.CopyObjectResult.ChecksumSHA256), 44)
	tags := must(client.GetObjectTagging(ctx, &s3.GetObjectTaggingInput{Bucket: in, Key: aws.String("copy")}))
	equal(*tags.TagSet[0].Value, "small")
	deleted := must(client.DeleteObjects(ctx, &s3.DeleteObjectsInput{Bucket: in, Delete: &types.Delete{
		Objects: []types.ObjectIdentifier{{Key: aws.String("copy")}, {Key: aws.String("a/b c+ü")}},
	}}))
	equal(len(deleted.Deleted), 2)
	must(client.DeleteBucket(ctx, &s3.DeleteBucketInput{Bucket: in}))
}

func errorTypes(ctx context.Context) {
	in, none := bucket(ctx, "sdk-go-errors"), aws.String("none")
	out, err := client.GetObject(ctx, &s3.GetObjectInput{Bucket: in, Key: none})
	equal(fails[*types.NoSuchKey](out, err).ErrorFault(), smithy.FaultClient)
	fails[*types.NotFound](client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: in, Key: none}))
	fails[*types.NotFound](client.HeadBucket(ctx, &s3.HeadBucketInput{Bucket: aws.String("sdk-go-none")}))
	fails[*types.NoSuchBucket](client.ListObjectsV2(ctx, &s3.ListObjectsV2Input{Bucket: aws.String("sdk-go-none")}))
	fails[*types.NoSuchUpload](client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: in, Key: none, UploadId: none}))
	policy, err := client.GetBucketPolicy(ctx, &s3.GetBucketPolicyInput{Bucket: in})
	refused("NoSuchBucketPolicy", policy, err)
	put(ctx, in, "key", "body")
	full, err := client.DeleteBucket(ctx, &s3.DeleteBucketInput{Bucket: in})
	refused("BucketNotEmpty", full, err)
	sent, err := client.PutObject(ctx, &s3.PutObjectInput{
		Bucket: in, Key: none, Body: strings.NewReader("body"), ChecksumCRC32: aws.String("AAAAAA=="),
	})
	refused("BadDigest", sent, err)
	beyond, err := client.GetObject(ctx, &s3.GetObjectInput{Bucket: in, Key: aws.String("key"), Range: aws.String("bytes=9-")})
	refused("InvalidRange", beyond, err)
}

func conditions(ctx context.Context) {
	in, key := bucket(ctx, "sdk-go-conditions"), aws.String("key")
	write := func(match, noneMatch *string) (*s3.PutObjectOutput, error) {
		body := strings.NewReader("body")
		return client.PutObject(ctx, &s3.PutObjectInput{Bucket: in, Key: key, Body: body, IfMatch: match, IfNoneMatch: noneMatch})
	}
	absent, err := write(aws.String(`"0"`), nil)
	refused("NoSuchKey", absent, err)
	stored := must(write(nil, aws.String("*")))
	again, err := write(nil, aws.String("*"))
	refused("PreconditionFailed", again, err)
	must(write(stored.ETag, nil))
	unchanged, err := client.GetObject(ctx, &s3.GetObjectInput{Bucket: in, Key: key, IfNoneMatch: stored.ETag})
	refused("NotModified", unchanged, err)
	kept, err := client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: in, Key: key, IfMatch: aws.String(`"0"`)})
	refused("PreconditionFailed", kept, err)
	must(client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: in, Key: key, IfMatch: stored.ETag}))
}

func waiters(ctx context.Context) {
	in, key := bucket(ctx, "sdk-go-waiters"), aws.String("key")
	check := func(err error) { must(0, err) }
	check(s3.NewBucketExistsWaiter(client).Wait(ctx, &s3.HeadBucketInput{Bucket: in}, wait))
	put(ctx, in, *key, "body")
	check(s3.NewObjectExistsWaiter(client).Wait(ctx, &s3.HeadObjectInput{Bucket: in, Key: key}, wait))
	must(client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: in, Key: key}))
	check(s3.NewObjectNotExistsWaiter(client).Wait(ctx, &s3.HeadObjectInput{Bucket: in, Key: key}, wait))
	must(client.DeleteBucket(ctx, &s3.DeleteBucketInput{Bucket: in}))
	check(s3.NewBucketNotExistsWaiter(client).Wait(ctx, &s3.HeadBucketInput{Bucket: in}, wait))
}

// pages sums up the items of all pages.
func pages[T any](ctx context.Context, more func() bool, next func(context.Context, ...func(*s3.Options)) (T, error), items func(T) int) int {
	sum := 0
	for more() {
		sum += items(must(next(ctx)))
	}
	return sum
}

func paginators(ctx context.Context) {
	in, two := bucket(ctx, "sdk-go-pages"), aws.Int32(2)
	must(client.PutBucketVersioning(ctx, &s3.PutBucketVersioningInput{Bucket: in, VersioningConfiguration: &types.VersioningConfiguration{
		Status: types.BucketVersioningStatusEnabled,
	}}))
	for number := range 7 {
		put(ctx, in, fmt.Sprintf("key %d", number%5), "body")
	}
	keys := s3.NewListObjectsV2Paginator(client, &s3.ListObjectsV2Input{Bucket: in, MaxKeys: two})
	equal(pages(ctx, keys.HasMorePages, keys.NextPage, func(page *s3.ListObjectsV2Output) int { return len(page.Contents) }), 5)
	versions := s3.NewListObjectVersionsPaginator(client, &s3.ListObjectVersionsInput{Bucket: in, MaxKeys: two})
	equal(pages(ctx, versions.HasMorePages, versions.NextPage, func(page *s3.ListObjectVersionsOutput) int { return len(page.Versions) }), 7)
	var begun *s3.CreateMultipartUploadOutput
	for number := range 3 {
		key := fmt.Sprint("upload ", number)
		begun = must(client.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{Bucket: in, Key: &key}))
	}
	uploads := s3.NewListMultipartUploadsPaginator(client, &s3.ListMultipartUploadsInput{Bucket: in, MaxUploads: two})
	equal(pages(ctx, uploads.HasMorePages, uploads.NextPage, func(page *s3.ListMultipartUploadsOutput) int { return len(page.Uploads) }), 3)
	for number := range int32(5) {
		must(client.UploadPart(ctx, &s3.UploadPartInput{
			Bucket: in, Key: begun.Key, UploadId: begun.UploadId, PartNumber: aws.Int32(number + 1), Body: strings.NewReader("part"),
		}))
	}
	parts := s3.NewListPartsPaginator(client, &s3.ListPartsInput{Bucket: in, Key: begun.Key, UploadId: begun.UploadId, MaxParts: two})
	equal(pages(ctx, parts.HasMorePages, parts.NextPage, func(page *s3.ListPartsOutput) int { return len(page.Parts) }), 5)
	buckets := s3.NewListBucketsPaginator(client, &s3.ListBucketsInput{MaxBuckets: aws.Int32(1), Prefix: aws.String("sdk-go-")})
	equal(pages(ctx, buckets.HasMorePages, buckets.NextPage, func(page *s3.ListBucketsOutput) int { return len(page.Buckets) }), 3)
}

func transfers(ctx context.Context) {
	in, body := bucket(ctx, "sdk-go-transfers"), sample(2*part+10)
	for _, algorithm := range []types.ChecksumAlgorithm{"", types.ChecksumAlgorithmCrc64nvme, types.ChecksumAlgorithmSha256} {
		key := aws.String("large" + string(algorithm))
		// A body without Seek, as from a pipe: the uploader buffers its parts.
		sent := must(manager.NewUploader(client).Upload(ctx, &s3.PutObjectInput{
			Bucket: in, Key: key, Body: io.MultiReader(bytes.NewReader(body)), ChecksumAlgorithm: algorithm,
		}))
		equal(len(sent.CompletedParts), 3)
		back := manager.NewWriteAtBuffer(nil)
		length := must(manager.NewDownloader(client).Download(ctx, back, &s3.GetObjectInput{Bucket: in, Key: key}))
		equal(length, int64(len(body)))
		equal(bytes.Equal(back.Bytes(), body), true)
		attributes := must(client.GetObjectAttributes(ctx, &s3.GetObjectAttributesInput{
			Bucket: in, Key: key, ObjectAttributes: []types.ObjectAttributes{types.ObjectAttributesObjectParts, types.ObjectAttributesObjectSize},
		}))
		equal(*attributes.ObjectParts.TotalPartsCount, 3)
		equal(*attributes.ObjectSize, int64(len(body)))
		second := must(client.GetObject(ctx, &s3.GetObjectInput{Bucket: in, Key: key, PartNumber: aws.Int32(2)}))
		equal(text(second.Body), string(body[part:2*part]))
	}
	cut, stop := context.WithCancel(ctx)
	stop()
	_, err := manager.NewUploader(client).Upload(cut, &s3.PutObjectInput{Bucket: in, Key: aws.String("cut"), Body: bytes.NewReader(body)})
	equal(errors.Is(err, context.Canceled), true)
}

// send sends a request without credentials, and returns its status and its body.
func send(ctx context.Context, method, url string, header http.Header, body io.Reader) (int, string) {
	request := must(http.NewRequestWithContext(ctx, method, url, body))
	for name, values := range header {
		request.Header[name] = values
	}
	answer := must(http.DefaultClient.Do(request))
	return answer.StatusCode, text(answer.Body)
}

func links(ctx context.Context) {
	in, key, links := bucket(ctx, "sdk-go-links"), aws.String("a/b c+ü"), s3.NewPresignClient(client)
	write := must(links.PresignPutObject(ctx, &s3.PutObjectInput{
		Bucket: in, Key: key, ContentType: aws.String("text/plain"), Metadata: map[string]string{"colour": "blue"},
	}))
	status, _ := send(ctx, write.Method, write.URL, write.SignedHeader, strings.NewReader("linked"))
	equal(status, 200)
	read := must(links.PresignGetObject(ctx, &s3.GetObjectInput{
		Bucket: in, Key: key, ResponseContentType: aws.String("text/html"),
	}, s3.WithPresignExpires(time.Minute)))
	status, body := send(ctx, read.Method, read.URL, read.SignedHeader, nil)
	equal(fmt.Sprint(status, body), "200linked")
	status, _ = send(ctx, read.Method, strings.Replace(read.URL, "Expires=60", "Expires=61", 1), nil, nil)
	equal(status, 403)
	upload := must(client.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{Bucket: in, Key: key}))
	piece := must(links.PresignUploadPart(ctx, &s3.UploadPartInput{Bucket: in, Key: key, UploadId: upload.UploadId, PartNumber: aws.Int32(1)}))
	status, _ = send(ctx, piece.Method, piece.URL, piece.SignedHeader, strings.NewReader("piece"))
	equal(status, 200)
	form := must(links.PresignPostObject(ctx, &s3.PutObjectInput{Bucket: in, Key: aws.String("form")}))
	var fields strings.Builder
	for name, value := range form.Values {
		fmt.Fprintf(&fields, "--B\r\nContent-Disposition: form-data; name=%q\r\n\r\n%s\r\n", name, value)
	}
	fields.WriteString("--B\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nposted\r\n--B--\r\n")
	media := http.Header{"Content-Type": {"multipart/form-data; boundary=B"}}
	status, _ = send(ctx, "POST", form.URL, media, strings.NewReader(fields.String()))
	equal(status, 204)
	posted := must(client.GetObject(ctx, &s3.GetObjectInput{Bucket: in, Key: aws.String("form")}))
	equal(text(posted.Body), "posted")
	remove := must(links.PresignDeleteObject(ctx, &s3.DeleteObjectInput{Bucket: in, Key: key}))
	status, _ = send(ctx, remove.Method, remove.URL, remove.SignedHeader, nil)
	equal(status, 204)
}

func locks(ctx context.Context) {
	in, key := aws.String("sdk-go-locks"), aws.String("ledger")
	must(client.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: in, ObjectLockEnabledForBucket: aws.Bool(true)}))
	must(client.PutObjectLockConfiguration(ctx, &s3.PutObjectLockConfigurationInput{Bucket: in, ObjectLockConfiguration: &types.ObjectLockConfiguration{
		ObjectLockEnabled: types.ObjectLockEnabledEnabled,
		Rule:              &types.ObjectLockRule{DefaultRetention: &types.DefaultRetention{Mode: types.ObjectLockRetentionModeGovernance, Days: aws.Int32(1)}},
	}}))
	sent := must(manager.NewUploader(client).Upload(ctx, &s3.PutObjectInput{Bucket: in, Key: key, Body: bytes.NewReader(sample(part + 1))}))
	until := time.Now().Add(48 * time.Hour).UTC().Truncate(time.Second)
	must(client.PutObjectRetention(ctx, &s3.PutObjectRetentionInput{Bucket: in, Key: key, VersionId: sent.VersionID, Retention: &types.ObjectLockRetention{
		Mode: types.ObjectLockRetentionModeGovernance, RetainUntilDate: &until,
	}}))
	must(client.PutObjectLegalHold(ctx, &s3.PutObjectLegalHoldInput{Bucket: in, Key: key, LegalHold: &types.ObjectLockLegalHold{Status: types.ObjectLockLegalHoldStatusOn}}))
	head := must(client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: in, Key: key}))
	equal(head.ObjectLockMode, types.ObjectLockModeGovernance)
	equal(head.ObjectLockRetainUntilDate.Equal(until), true)
	equal(head.ObjectLockLegalHoldStatus, types.ObjectLockLegalHoldStatusOn)
	bypass := &s3.DeleteObjectInput{Bucket: in, Key: key, VersionId: sent.VersionID, BypassGovernanceRetention: aws.Bool(true)}
	held, err := client.DeleteObject(ctx, bypass)
	refused("AccessDenied", held, err)
	must(client.PutObjectLegalHold(ctx, &s3.PutObjectLegalHoldInput{Bucket: in, Key: key, LegalHold: &types.ObjectLockLegalHold{Status: types.ObjectLockLegalHoldStatusOff}}))
	retained, err := client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: in, Key: key, VersionId: sent.VersionID})
	refused("AccessDenied", retained, err)
	must(client.DeleteObject(ctx, bypass))
	must(client.DeleteBucket(ctx, &s3.DeleteBucketInput{Bucket: in}))
}

func encryption(ctx context.Context) {
	in := bucket(ctx, "sdk-go-encryption")
	sealed := must(manager.NewUploader(client).Upload(ctx, &s3.PutObjectInput{
		Bucket: in, Key: aws.String("sealed"), Body: bytes.NewReader(sample(part + 1)), ServerSideEncryption: types.ServerSideEncryptionAes256,
	}))
	equal(sealed.ServerSideEncryption, types.ServerSideEncryptionAes256)
	algorithm := aws.String("AES256")
	own, ownDigest := customerKey('k')
	other, otherDigest := customerKey('o')
	must(client.PutObject(ctx, &s3.PutObjectInput{
		Bucket: in, Key: aws.String("own"), Body: strings.NewReader("secret"),
		SSECustomerAlgorithm: algorithm, SSECustomerKey: own, SSECustomerKeyMD5: ownDigest,
	}))
	read := func(key string, secret, digest *string) (*s3.GetObjectOutput, error) {
		return client.GetObject(ctx, &s3.GetObjectInput{
			Bucket: in, Key: &key, SSECustomerAlgorithm: algorithm, SSECustomerKey: secret, SSECustomerKeyMD5: digest,
		})
	}
	equal(text(must(read("own", own, ownDigest)).Body), "secret")
	wrong, err := read("own", other, otherDigest)
	refused("AccessDenied", wrong, err)
	bare, err := client.GetObject(ctx, &s3.GetObjectInput{Bucket: in, Key: aws.String("own")})
	refused("InvalidRequest", bare, err)
	must(client.CopyObject(ctx, &s3.CopyObjectInput{
		Bucket: in, Key: aws.String("copy"), CopySource: aws.String("sdk-go-encryption/own"),
		CopySourceSSECustomerAlgorithm: algorithm, CopySourceSSECustomerKey: own, CopySourceSSECustomerKeyMD5: ownDigest,
		SSECustomerAlgorithm: algorithm, SSECustomerKey: other, SSECustomerKeyMD5: otherDigest,
	}))
	equal(text(must(read("copy", other, otherDigest)).Body), "secret")
	must(manager.NewUploader(client).Upload(ctx, &s3.PutObjectInput{
		Bucket: in, Key: aws.String("parts"), Body: bytes.NewReader(sample(2*part + 1)),
		SSECustomerAlgorithm: algorithm, SSECustomerKey: own, SSECustomerKeyMD5: ownDigest,
	}))
	back := manager.NewWriteAtBuffer(nil)
	must(manager.NewDownloader(client).Download(ctx, back, &s3.GetObjectInput{
		Bucket: in, Key: aws.String("parts"), SSECustomerAlgorithm: algorithm, SSECustomerKey: own, SSECustomerKeyMD5: ownDigest,
	}))
	equal(bytes.Equal(back.Bytes(), sample(2*part+1)), true)
}

// customerKey returns a key of this byte and its digest, as the SDK sends them: it encodes neither.
func customerKey(fill byte) (key, digest *string) {
	secret := bytes.Repeat([]byte{fill}, 32)
	hash := md5.Sum(secret)
	encode := base64.StdEncoding.EncodeToString
	return aws.String(encode(secret)), aws.String(encode(hash[:]))
}
