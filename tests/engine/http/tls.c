/* SPDX-License-Identifier: Apache-2.0 */
/* Certificates are verified unless somebody says not to. */
#include <unistd.h>

#include "http/cases.h"

HTTP_TEST(a_good_certificate_is_taken)
{
	reads_right(f, fault_uri_at("good", "size=%zu", LONG), LONG, 0);
}

HTTP_TEST(a_certificate_for_another_host_is_refused)
{
	const char *uri = fault_uri_at("wrong_host", "size=5000");

	open_fails(f, uri, EACCES, "certificate");
	assert_int_equal(asked(uri, "requests"), 0);
}

HTTP_TEST(an_expired_certificate_is_refused)
{
	const char *uri = fault_uri_at("expired", "size=5000");

	open_fails(f, uri, EACCES, "certificate");
	assert_non_null(strstr(sluice_last_message(), "expired"));
	assert_int_equal(asked(uri, "requests"), 0);
}

HTTP_TEST(an_authority_that_nobody_knows_is_refused)
{
	unsetenv("SLUICE_CA_BUNDLE");
	fixture_config(f, &row->config);
	open_fails(f, fault_uri_at("good", "size=5000"), EACCES, "certificate");
}

/* It is no passing trouble, so there is one handshake and no second attempt. */
HTTP_TEST(a_bad_certificate_is_refused_at_once)
{
	double begun;

	with(f, "SLUICE_HTTP_BACKOFF_MAX_MS", "60000");
	with(f, "SLUICE_HTTP_BACKOFF_MS", "60000");
	begun = seconds_now();
	open_fails(f, fault_uri_at("expired", "size=5000"), EACCES, "certificate");
	assert_soon(begun);
	/* Nor is it when the server wants one of us. */
	begun = seconds_now();
	open_fails(f, fault_uri_at("client", "size=5000"), EACCES, "certificate required");
	assert_soon(begun);
}

HTTP_TEST(a_redirect_to_a_bad_certificate_is_refused)
{
	const char *to = fault_uri_at("wrong_host", "size=5000");

	open_fails(f, fault_uri("fault=redirect:302&on=HEAD,GET&to=%s", as_option(to)), EACCES,
	           "certificate");
	read_fails(f, fault_uri("size=5000&fault=redirect:302&to=%s", as_option(to)), 1000, 10,
	           EACCES, "certificate");
	assert_int_equal(asked(to, "requests"), 0);
}

HTTP_TEST(insecure_takes_any_certificate)
{
	with(f, "SLUICE_TLS_INSECURE", "1");
	reads_right(f, fault_uri_at("wrong_host", "size=5000"), 1000, 10);
	reads_right(f, fault_uri_at("expired", "size=5000"), 1000, 10);
}

HTTP_TEST(a_bundle_that_is_not_there_is_an_error_that_names_it)
{
	sluice_context *ctx = NULL;
	sluice_file *file = NULL;
	int rc;

	setenv("SLUICE_CA_BUNDLE", "/nonexistent/ca.pem", 1);
	rc = sluice_context_new(&row->config, &ctx);
	if (rc == 0) {
		rc = sluice_open(ctx, fault_uri_at("good", "size=5000"), NULL, &file);
		assert_true(rc < 0);
	}
	assert_non_null(strstr(sluice_last_message(), "/nonexistent/ca.pem"));
	assert_ok(sluice_context_close(ctx));
}

HTTP_TEST(plain_http_on_a_tls_port_is_an_error)
{
	char uri[100];
	sluice_file *file = NULL;

	with(f, "SLUICE_HTTP_ATTEMPTS", "2");
	with(f, "SLUICE_HTTP_STALL_MS", "100");
	/* The server waits for the end of a line, which a handshake has by chance alone. */
	with(f, "SLUICE_HTTP_CONNECT_MS", "500");
	snprintf(uri, sizeof(uri), "http://127.0.0.1:%d/x", server_port("good"));
	assert_true(sluice_open(f->ctx, uri, NULL, &file) < 0);
	snprintf(uri, sizeof(uri), "https://127.0.0.1:%d/x", server_port("plain"));
	assert_true(sluice_open(f->ctx, uri, NULL, &file) < 0);
	assert_true(*sluice_last_message());
}
