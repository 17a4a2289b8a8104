/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Services that have credentials
 *
 * Asks a container's or a machine's own service for the keys to its role; a machine's is IMDS in
 * version 2, where a token comes first. Asks AWS's Security Token Service for the keys to a role:
 * with keys (AssumeRole), or with the token for a web identity (AssumeRoleWithWebIdentity). A call
 * is a short request by libcurl, beside the engine for remote files: it has no permit, is made
 * once, and the answer is small.
 *
 * Threads: any that may wait: the answer ends the wait, or a time-out.
 */
#include <arpa/inet.h>
#include <curl/curl.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "s3/sign.h"

#define MOST_ANSWER     65536
#define MOST_TOKEN      4096
#define MOST_IDENTITY   32768 /* a web identity's token */
#define NEAR_CONNECT_MS 1000L
#define NEAR_MS         5000L

/* -------------------------------------------------------------------------------------- call */

struct service_call {
	const char *what; /* it asks for, in words: the URL's path may be a secret */
	const char *method;
	const char *url;
	struct curl_slist *lines; /* header; or NULL */
	const char *body;         /* for a POST; or NULL */
	bool near; /* the machine's own service: no proxy, and it answers at once or never */
};

/* Less than it gave ends the call. */
static size_t answer_on_body(char *data, size_t size, size_t count, void *argument)
{
	char *text = argument;
	size_t length = strlen(text), bytes = SL_MIN(size * count, MOST_ANSWER - 1 - length);

	memcpy(text + length, data, bytes);
	return bytes;
}

static void call_prepare(CURL *easy, const struct sl_settings *settings,
                         const struct service_call *call)
{
	const char *bundle =
		settings->ca_bundle[0] ? settings->ca_bundle : sl_s3_variable("AWS_CA_BUNDLE");
	long connect = call->near ? NEAR_CONNECT_MS : (long)settings->http_connect_ms;
	long most = call->near ? NEAR_MS : connect + (long)settings->http_stall_ms;

	curl_easy_setopt(easy, CURLOPT_URL, call->url);
	curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, call->method);
	if (call->body)
		curl_easy_setopt(easy, CURLOPT_POSTFIELDS, call->body);
	curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(easy, CURLOPT_USERAGENT, "sluice/" SLUICE_VERSION);
	curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, connect);
	curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, most);
	curl_easy_setopt(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
	if (call->near)
		curl_easy_setopt(easy, CURLOPT_NOPROXY, "*");
	if (bundle)
		curl_easy_setopt(easy, CURLOPT_CAINFO, bundle);
	if (settings->tls_insecure) {
		curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 0L);
		curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 0L);
	}
}

/* Returns 0, or -errno with a sentence, in which the URL has scheme, host and port only. */
static int answer_judge(const struct service_call *call, CURLcode code, long status,
                        const char *text)
{
	char *name = sl_uri_name(call->url);
	const char *host = name ? strstr(name, "://") : NULL;
	int length = host ? (int)(host + 3 + strcspn(host + 3, "/") - name) : 0, rc = 0;
	struct sl_service_error error;

	if (code == CURLE_OUT_OF_MEMORY) {
		rc = sl_fail(-ENOMEM, "no memory");
	} else if (code) {
		rc = sl_fail(-EACCES, "'%.*s' gave no %s: %s", length, name, call->what,
		             curl_easy_strerror(code));
	} else if (status != 200) {
		sl_s3_error_parse(text, &error);
		rc = sl_fail(-EACCES, "'%.*s' gave no %s: HTTP %ld%s%s%s%s", length, name,
		             call->what, status, error.code[0] ? ": " : "", error.code,
		             error.message[0] ? ": " : "", error.message);
	}
	free(name);
	return rc;
}

/* Makes a call, and waits for the answer, some seconds at most. Redirects are not followed. Returns
 * 0 with the body, for sl_s3_text_clear(); or -EACCES, -ENOMEM with a sentence, also without status
 * 200. */
static int call_make(const struct sl_settings *settings, const struct service_call *call,
                     char **out)
{
	char *text = calloc(1, MOST_ANSWER);
	CURL *easy = text ? curl_easy_init() : NULL;
	CURLcode code = CURLE_OUT_OF_MEMORY;
	long status = 0;

	if (easy) {
		call_prepare(easy, settings, call);
		curl_easy_setopt(easy, CURLOPT_HTTPHEADER, call->lines);
		curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, answer_on_body);
		curl_easy_setopt(easy, CURLOPT_WRITEDATA, text);
		code = curl_easy_perform(easy);
		curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
	}
	curl_easy_cleanup(easy);
	int rc = answer_judge(call, code, status, text);
	if (rc)
		sl_s3_text_clear(text);
	else
		*out = text;
	return rc;
}

/* Makes a call for keys; token: the session token's name. Returns 0, or -errno with a sentence. */
static int call_for_keys(const struct sl_settings *settings, const struct service_call *call,
                         sl_s3_getter *get, const char *token, const char *service,
                         struct sl_s3_keys *out)
{
	char *text = NULL;
	int rc = call_make(settings, call, &text);

	if (!rc && !sl_s3_keys_parse(get, text, token, out))
		rc = sl_fail(-EACCES, "there are no keys in the answer of the %s", service);
	sl_s3_text_clear(text);
	return rc;
}

/* Reads a token, a line of a file. Returns 0, or -EACCES with a sentence about the file. */
static int token_file_read(const char *path, char *text, size_t size)
{
	FILE *file = fopen(path, "re");
	size_t length = file ? fread(text, 1, size - 1, file) : 0;

	if (file)
		fclose(file);
	text[length] = '\0';
	text[strcspn(text, "\r\n")] = '\0';
	return text[0] ? 0
	               : sl_fail(-EACCES, "the file '%s' with a token %s", path,
	                         file ? "is empty" : "cannot be read");
}

/* ---------------------------------------------------------------------- container, machine */

/* Returns whether a token may be sent to a URL: by TLS, or to this machine, ECS or EKS. */
static bool url_is_safe(const char *url)
{
	static const char *const services[] = {"localhost", "169.254.170.2", "169.254.170.23",
	                                       "[::1]", "[fd00:ec2::23]"};
	CURLU *parsed = curl_url();
	char *host = NULL, *scheme = NULL;
	struct in_addr address;
	bool is_url = parsed && !curl_url_set(parsed, CURLUPART_URL, url, 0) &&
	              !curl_url_get(parsed, CURLUPART_HOST, &host, 0) &&
	              !curl_url_get(parsed, CURLUPART_SCHEME, &scheme, 0);
	bool safe =
		is_url && (!strcmp(scheme, "https") || (inet_pton(AF_INET, host, &address) == 1 &&
	                                                ntohl(address.s_addr) >> 24 == 127));

	for (size_t i = 0; is_url && i < sizeof(services) / sizeof(services[0]); i++)
		safe = safe || !strcmp(host, services[i]);
	curl_free(host);
	curl_free(scheme);
	curl_url_cleanup(parsed);
	return safe;
}

/* Asks for keys in JSON. Returns 0, or -EACCES with a sentence. */
static int metadata_keys(const struct sl_settings *settings, const char *url, const char *line,
                         struct sl_s3_keys *out)
{
	struct curl_slist lines = {.data = (char *)line};
	struct service_call call = {"keys", "GET", url, line ? &lines : NULL, NULL, true};

	return call_for_keys(settings, &call, sl_s3_json_get, "Token", "metadata service", out);
}

int sl_s3_container_ask(const struct sl_s3_source *source, const struct sl_settings *settings,
                        struct sl_s3_keys *out)
{
	const char *url = source->texts[0], *given = source->texts[1], *path = source->texts[2];
	char token[MOST_TOKEN] = "", line[MOST_TOKEN + 32];
	int rc = path ? token_file_read(path, token, sizeof(token)) : 0;

	if (!path && given)
		snprintf(token, sizeof(token), "%s", given);
	if (!rc && !url_is_safe(url))
		rc = sl_fail(-EINVAL, "AWS_CONTAINER_CREDENTIALS_FULL_URI is no URL by https, of "
		                      "this machine, or of ECS or EKS");
	if (!rc && strpbrk(token, "\r\n"))
		rc = sl_fail(-EINVAL, "AWS_CONTAINER_AUTHORIZATION_TOKEN has more than a line");
	snprintf(line, sizeof(line), "Authorization: %s", token);
	if (!rc)
		rc = metadata_keys(settings, url, token[0] ? line : NULL, out);
	explicit_bzero(token, sizeof(token));
	explicit_bzero(line, sizeof(line));
	return rc;
}

/* Makes a call for a line, for the caller to clear. Returns 0, or -EACCES with a sentence. */
static int machine_line(const struct sl_settings *settings, const char *what, const char *method,
                        const char *url, const char *line, char **out)
{
	struct curl_slist lines = {.data = (char *)line};
	struct service_call call = {what, method, url, &lines, NULL, true};
	int rc = call_make(settings, &call, out);

	if (!rc)
		(*out)[strcspn(*out, "\r\n")] = '\0';
	return rc;
}

int sl_s3_machine_ask(const struct sl_s3_source *source, const struct sl_settings *settings,
                      struct sl_s3_keys *out)
{
	const char *service = source->texts[0];
	char line[MOST_TOKEN], url[1024], *token = NULL, *role = NULL, *name = NULL;

	snprintf(url, sizeof(url), "%.256s/latest/api/token", service);
	int rc = machine_line(settings, "token", "PUT", url,
	                      "X-aws-ec2-metadata-token-ttl-seconds: 21600", &token);
	if (rc)
		return rc;
	snprintf(line, sizeof(line), "X-aws-ec2-metadata-token: %s", token);
	snprintf(url, sizeof(url), "%.256s/latest/meta-data/iam/security-credentials/", service);
	rc = machine_line(settings, "role", "GET", url, line, &role);
	if (!rc && !(name = sl_uri_escape(role, false)))
		rc = sl_fail(-ENOMEM, "no memory");
	if (!rc) {
		snprintf(url + strlen(url), sizeof(url) - strlen(url), "%s", name);
		rc = metadata_keys(settings, url, line, out);
	}
	sl_s3_text_clear(token);
	free(role);
	free(name);
	explicit_bzero(line, sizeof(line));
	return rc;
}

/* -------------------------------------------------------------------------------------- role */

static bool element_get(const char *xml, const char *name, char *out, size_t size)
{
	sl_xml_element(xml, name, out, size);
	return out[0];
}

/* Asks for keys in XML. As AWS's programs do it, by POST: other services know no GET. */
static int role_keys(const struct sl_settings *settings, const char *url, struct curl_slist *lines,
                     const char *body, struct sl_s3_keys *out)
{
	struct service_call call = {"keys", "POST", url, lines, body, false};

	return call_for_keys(settings, &call, element_get, "SessionToken", "Security Token Service",
	                     out);
}

int sl_s3_role_ask(const struct sl_s3_source *source, const struct sl_settings *settings,
                   struct sl_s3_keys *out)
{
	static const struct sl_s3_name server = {(char *)"", (char *)""};
	const struct sl_s3_source *base = source->base;
	struct sl_s3_keys asked = {0};
	const char *body = source->texts[2];
	char payload[SL_SIGN_HEX];
	struct sl_sign_request request = {
		.method = "POST", .payload = payload, .region = source->texts[1], .service = "sts"};
	struct curl_slist *lines = NULL;
	struct sl_s3_address address = {0};
	int rc = sl_s3_address_find(&server, source->texts[0], "path", source->texts[1], NULL,
	                            &address);

	if (!rc)
		rc = sl_sign_payload(body, strlen(body), payload);
	if (!rc && base->ask)
		rc = base->ask(base, settings, &asked);
	if (!rc)
		rc = sl_s3_authorize(&request, &address, base->ask ? &asked : &base->keys,
		                     time(NULL), &lines);
	if (!rc)
		rc = role_keys(settings, address.url, lines, body, out);
	sl_lines_clear(&lines, NULL);
	sl_s3_keys_clear(&asked);
	sl_s3_address_clear(&address);
	return rc;
}

int sl_s3_identity_ask(const struct sl_s3_source *source, const struct sl_settings *settings,
                       struct sl_s3_keys *out)
{
	char *token = malloc(MOST_IDENTITY), *encoded = NULL, *body = NULL;
	int rc = token ? token_file_read(source->texts[1], token, MOST_IDENTITY)
	               : sl_fail(-ENOMEM, "no memory");

	if (!rc && (encoded = sl_uri_escape(token, false)))
		body = sl_format("%s&WebIdentityToken=%s", source->texts[2], encoded);
	if (!rc)
		rc = body ? role_keys(settings, source->texts[0], NULL, body, out)
		          : sl_fail(-ENOMEM, "no memory");
	sl_s3_text_clear(token);
	sl_s3_text_clear(encoded);
	sl_s3_text_clear(body);
	return rc;
}
