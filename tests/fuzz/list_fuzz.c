/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Throws mutated pages at the parser of a bucket's lists, and checks what must hold of each entry that it gives.
 * Arguments: seconds, and a seed to repeat a run.
 */
#include "core/core.h"
#include "fuzz/fuzz.h"
#include "s3/s3_internal.h"

#include <errno.h>
#include <string.h>

#define MOST 2000

static const char *const pieces[] = {
	"<ListBucketResult>",
	"</ListBucketResult>",
	"<ListMultipartUploadsResult xmlns=\"x\">",
	"</ListMultipartUploadsResult>",
	"<ListAllMyBucketsResult>",
	"</ListAllMyBucketsResult>",
	"<EncodingType>url</EncodingType>",
	"<IsTruncated>false</IsTruncated>",
	"<IsTruncated>true</IsTruncated>",
	"<NextContinuationToken>a+%&amp;=</NextContinuationToken>",
	"<NextKeyMarker>a%2Bb</NextKeyMarker><NextUploadIdMarker>u</NextUploadIdMarker>",
	"<NextKeyMarker/>",
	"<Contents><Key>",
	"<Contents a='b'><Key>",
	"</Key><Size>18446744073709551616</Size><ETag>&quot;e&quot;</ETag></Contents>",
	"<Contents><Key>a</Key><LastModified>2020-01-02T03:04:05.000Z</LastModified></Contents>",
	"<CommonPrefixes><Prefix>",
	"/</Prefix></CommonPrefixes>",
	"<Upload><Key>",
	"</Key><UploadId>u&#65;</UploadId></Upload>",
	"<ContinuationToken>a+%&amp;=</ContinuationToken>",
	"<Buckets><Bucket><Name>",
	"</Name><CreationDate>2020-01-02T03:04:05.000Z</CreationDate></Bucket></Buckets>",
	"<Key>",
	"</Key>",
	"&#x1F600;",
	"&#233;",
	"&#10;",
	"&#xD800;",
	"&#x110000;",
	"&#99999999999999999999;",
	"&#x",
	"&apos;",
	"&",
	"%41",
	"%00",
	"%",
	"+",
	"<",
	">",
	"\xff",
};
#define PIECES (sizeof(pieces) / sizeof(*pieces))

static const char *subject;

static void require(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "broken: %s, by '%s'\n", what, subject);
	abort();
}

static void append(char *text, const char *piece)
{
	size_t length = strlen(text);

	snprintf(text + length, MOST - length, "%s", piece);
}

/* A page of any pieces; most begin and end as lists, and some have a name that is too long, or miss bytes. */
static void make_page(char *text)
{
	uint64_t kind = 2 * draw(3), whole = draw(8);

	text[0] = '\0';
	if (whole)
		append(text, pieces[kind]);
	if (draw(4))
		append(text, pieces[7 + draw(2)]);
	for (uint64_t i = draw(30); i > 0; i--)
		append(text, pieces[draw(PIECES)]);
	if (whole)
		append(text, pieces[kind + 1]);
	for (uint64_t i = draw(6) / 3; i > 0 && text[0]; i--)
		text[draw(strlen(text))] = (char)(1 + draw(255));
}

static void check_entries(struct sl_service_page *page, bool uploads)
{
	struct sl_service_entry entry;
	size_t most = strlen(page->at);
	int rc;

	memset(&entry, 'x', sizeof(entry));
	entry.upload[0] = '\0';
	while ((rc = sl_s3_lists.next(page, &entry)) > 0) {
		require(memchr(entry.name, '\0', SL_SERVICE_NAME) && entry.name[0],
		        "a name has no end, or no begin");
		require(memchr(entry.etag, '\0', SL_SERVICE_TEXT), "an ETag has no end");
		require(memchr(entry.upload, '\0', SL_SERVICE_UPLOAD) &&
		                uploads == !!entry.upload[0],
		        "an upload has no id, or an object has one");
		require(most-- > 0, "there are more entries than bytes");
	}
	require(rc == 0 || rc == -EPROTO, "an entry is another error");
	require(sl_s3_lists.next(page, &entry) == rc, "an end or an error is followed by an entry");
}

static void check_page(char *text, const char *uri, unsigned flags)
{
	struct sl_service_page page;
	char *token;
	int rc = sl_s3_lists.page(uri, flags, text, &page, &token);

	require(rc == 0 || (rc == -EPROTO && !token), "a page is another error, or has a token");
	require(!token || token[0], "a token is empty");
	free(token);
	if (!rc)
		check_entries(&page, flags & SLUICE_LIST_UPLOADS);
}

static void check_entity(const char *text)
{
	char out[5], element[8];
	size_t length = sl_xml_entity(text, out), n = strlen(out);

	require(length <= strlen(text) && n >= 1 && n <= 4, "an entity is longer than its text");
	require(length ? sl_utf8_valid(out, n) : !strcmp(out, "&"), "an entity is no character");
	sl_xml_element(subject, "Key", element, sizeof(element));
	require(memchr(element, '\0', sizeof(element)), "an element has no end");
}

static unsigned long runs;

static void check_some(void)
{
	static char text[MOST];

	for (int i = 0; i < 500; i++, runs++) {
		make_page(text);
		subject = text;
		for (const char *at = text; (at = strchr(at, '&')); at++)
			check_entity(at);
		for (int kind = 0; kind < 3; kind++) {
			/* Of its very length, so that the sanitizer sees one byte too many. */
			char *exact = strdup(text);

			if (exact)
				check_page(exact, kind < 2 ? "s3://b/" : "s3://",
				           kind == 1 ? SLUICE_LIST_UPLOADS : 0);
			free(exact);
		}
	}
}

int main(int argc, char **argv)
{
	fuzz(argc, argv, check_some);
	printf("%lu pages\n", runs);
	return 0;
}
