#include "tests/lib/http_fixture.h"

#include <stdlib.h>

#include "base/xalloc.h"

/* The routes over a real socket: create, get, list, exec, delete, and who may. */

static void test_create_exec_delete(void **state)
{
	struct answer *a = http_json(h, "POST", "/v1/sandboxes", h->key,
		"{\"size\":\"tiny\",\"timeout_minutes\":30,\"metadata\":{\"team\":\"blue\"}}");

	(void)state;
	assert_int_equal(a->status, 201);
	assert_string_equal(answer_text(a, "status"), "running");
	assert_string_equal(answer_text(a, "size"), "tiny");
	assert_string_equal(answer_text(a, "memory_mb"), "256");
	assert_string_equal(answer_text(a, "network"), "none");
	assert_string_equal(answer_text(a, "metadata.team"), "blue");
	assert_non_null(answer_text(a, "ready_at"));
	assert_null(answer_text(a, "ended_at"));
	assert_null(answer_text(a, "account"));
	assert_non_null(answer_header(a, "X-Request-Id"));
	const char *id = answer_text(a, "id");

	a = http_get(h, h->key, http_at(id, ""));
	assert_int_equal(a->status, 200);
	assert_string_equal(answer_text(a, "id"), id);

	a = http_json(h, "POST", http_at(id, "/exec"), h->key, "{\"command\":\"echo hello\"}");
	assert_int_equal(a->status, 200);
	assert_string_equal(answer_text(a, "stdout"), "hello\n");
	assert_string_equal(answer_text(a, "exit_code"), "0");
	assert_string_equal(answer_text(a, "timed_out"), "false");
	assert_null(answer_text(a, "signal"));

	a = http_json(h, "DELETE", http_at(id, ""), h->key, NULL);
	assert_int_equal(a->status, 200);
	assert_string_equal(answer_text(a, "status"), "deleted");
	assert_string_equal(answer_text(a, "reason"), "deleted");
	assert_non_null(answer_text(a, "ended_at"));
	a = http_json(h, "DELETE", http_at(id, ""), h->key, NULL);
	assert_int_equal(a->status, 200);
	a = http_get(h, h->key, http_at(id, ""));
	assert_int_equal(a->status, 200);
	assert_string_equal(answer_text(a, "status"), "deleted");
	a = http_json(h, "POST", http_at(id, "/exec"), h->key, "{\"command\":\"true\"}");
	assert_int_equal(a->status, 409);
	assert_string_equal(answer_text(a, "error.type"), "sandbox_ended");
}

static void test_create_without_waiting(void **state)
{
	struct answer *a;

	(void)state;
	fake_hv_script(h->w->hv, FAKE_HV_START, &(struct fake_script){.mode = FAKE_HOLD});
	a = http_json(h, "POST", "/v1/sandboxes", h->key, "{\"wait\":false,\"name\":\"slow\"}");
	assert_int_equal(a->status, 202);
	assert_string_equal(answer_text(a, "status"), "provisioning");
	a = http_json(h, "POST", http_at("slow", "/exec"), h->key, "{\"command\":\"true\"}");
	assert_int_equal(a->status, 409);
	assert_string_equal(answer_text(a, "error.type"), "conflict");
	fake_hv_release(h->w->hv, FAKE_HV_START);
	WORLD_UNTIL(h->w, strcmp(answer_text(http_get(h, h->key, http_at("slow", "")), "status"),
				  "running") == 0);
}

static void test_failed_creation_says_why(void **state)
{
	struct answer *a;

	(void)state;
	fake_hv_script(h->w->hv, FAKE_HV_START,
		&(struct fake_script){.mode = FAKE_FAIL, .kind = ERR_UNAVAILABLE});
	a = http_json(h, "POST", "/v1/sandboxes", h->key, "{}");
	assert_int_equal(a->status, 503);
	assert_string_equal(answer_text(a, "error.type"), "unavailable");
	assert_non_null(answer_header(a, "Retry-After"));
	fake_hv_script(h->w->hv, FAKE_HV_START, NULL);
	WORLD_UNTIL(h->w, sandboxes_count(h->w->all) == 0);
	a = http_get(h, h->key, "/v1/sandboxes?status=failed");
	assert_string_equal(answer_text(a, "data.0.status"), "failed");
	assert_non_null(answer_text(a, "data.0.reason"));
}

static void test_sizes(void **state)
{
	static const struct {
		const char *body;
		const char *says;
	} refused[] = {
		{"{\"size\":\"huge\"}", "must be one of tiny, small"},
		{"{\"size\":\"tiny\",\"vcpus\":1}", "exclude each other"},
		{"{\"vcpus\":1,\"disk_gb\":2}", "\"memory_mb\" is missing"},
		{"{\"timeout_minutes\":1441}", "between 1 and 1440, not 1441"},
		{"{\"image\":\"none\"}", "there is no image"},
		{"{\"name\":\"Not_A_Name\"}", "\"name\""},
	};
	struct answer *a;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
		a = http_json(h, "POST", "/v1/sandboxes", h->key, refused[i].body);
		assert_int_equal(a->status, 400);
		assert_string_equal(answer_text(a, "error.type"), "invalid_request");
		assert_non_null(strstr(answer_text(a, "error.message"), refused[i].says));
	}
	a = http_json(h, "POST", "/v1/sandboxes", h->key,
		"{\"vcpus\":2,\"memory_mb\":300,\"disk_gb\":3}");
	assert_int_equal(a->status, 201);
	assert_string_equal(answer_text(a, "size"), "custom");
	assert_string_equal(answer_text(a, "disk_gb"), "3");
	a = http_json(h, "POST", "/v1/sandboxes", h->key, "{\"temporary\":false}");
	assert_int_equal(a->status, 201);
	assert_null(answer_text(a, "expires_at"));
	assert_int_equal(
		http_json(h, "POST", "/v1/sandboxes", h->key, "{\"network\":\"egress\"}")->status,
		503);
}

/* The guest is told all of it in one request: too much would show only once it had booted. */
static void test_an_environment_has_a_limit_as_a_whole(void **state)
{
	(void)state;
	/* "A=", "B=", … and a NUL each: 4 of 32 KiB are just as much as there may be. */
	for (int over = 0; over < 2; over++) {
		_cleanup_free_ char *body = xasprintf(
			"{\"wait\":false,\"env\":{\"A\":\"%032765d\",\"B\":\"%032765d\","
			"\"C\":\"%032765d\",\"D\":\"%0*d\"}}",
			0, 0, 0, 32765 + over, 0);
		struct answer *a = http_json(h, "POST", "/v1/sandboxes", h->key, body);

		assert_int_equal(a->status, over ? 400 : 202);
		if (over) {
			assert_non_null(strstr(answer_text(a, "error.message"), "131072"));
			assert_non_null(strstr(answer_text(a, "error.message"), "\"env\""));
		}
	}
}

static void test_quota_names_its_limit(void **state)
{
	struct answer *a;

	(void)state;
	for (int i = 0; i < 20; i++) {
		a = http_json(h, "POST", "/v1/sandboxes", h->key, "{\"wait\":false}");
		assert_int_equal(a->status, 202);
	}
	a = http_json(h, "POST", "/v1/sandboxes", h->key, "{}");
	assert_int_equal(a->status, 429);
	assert_string_equal(answer_text(a, "error.type"), "quota_exceeded");
	assert_non_null(strstr(answer_text(a, "error.message"), "20"));
	assert_non_null(answer_header(a, "Retry-After"));
}

static struct answer *create_with_key(const char *key, const char *body)
{
	return http_request(
		h, "POST", "/v1/sandboxes", h->key, key, "application/json", body, strlen(body));
}

static void test_idempotency_key(void **state)
{
	const char *key = "Idempotency-Key: once\r\n";
	struct answer *a = create_with_key(
		key, "{\"name\":\"a\",\"env\":{\"A\":\"1\",\"B\":\"2\"}}");

	(void)state;
	assert_int_equal(a->status, 201);
	const char *id = answer_text(a, "id");

	/* The same request, written otherwise. */
	a = create_with_key(
		key, " {\"env\":{\"B\":\"2\",\"A\":\"1\"},\"wait\":false, \"name\":\"a\"}");
	assert_int_equal(a->status, 200);
	assert_string_equal(answer_text(a, "id"), id);
	a = create_with_key(key, "{\"name\":\"a\",\"env\":{\"A\":\"2\",\"B\":\"1\"}}");
	assert_int_equal(a->status, 409);
	a = create_with_key("Idempotency-Key: other\r\n", "{\"name\":\"a\"}");
	assert_int_equal(a->status, 409);
	assert_non_null(strstr(answer_text(a, "error.message"), id));
	assert_int_equal(create_with_key("Idempotency-Key: \r\n", "{}")->status, 400);
	assert_int_equal(sandboxes_count(h->w->all), 1);
}

static void test_extend_moves_the_expiry(void **state)
{
	const char *id = http_running(h, NULL);
	struct answer *before = http_get(h, h->key, http_at(id, ""));
	struct answer *a = http_json(h, "POST", http_at(id, "/extend"), h->key, "{\"minutes\":10}");

	(void)state;
	assert_int_equal(a->status, 200);
	assert_true(strcmp(answer_text(a, "expires_at"), answer_text(before, "expires_at")) > 0);
	assert_int_equal(
		http_json(h, "POST", http_at(id, "/extend"), h->key, "{\"minutes\":0}")->status,
		400);
	a = http_json(h, "POST", http_at(id, "/extend"), h->key, "{\"minutes\":1441}");
	assert_int_equal(a->status, 400);
	assert_non_null(strstr(answer_text(a, "error.message"), "1440"));
}

/* The name was looked up once: who has it at the end is somebody else. */
static void test_extending_a_name_that_is_given_away_meanwhile(void **state)
{
	_cleanup_free_ char *first = xstrdup(http_running(h, "web"));
	struct client *c = client_new(h);

	(void)state;
	fake_guest_script(h->w->guests, FAKE_GUEST_CONFIGURE,
		&(struct fake_script){.mode = FAKE_HOLD, .times = 1});
	unsigned before = fake_guest_calls(h->w->guests, FAKE_GUEST_CONFIGURE);

	client_request(c, "POST", http_at("web", "/extend"), h->key, NULL, "application/json",
		"{\"minutes\":10}", 14);
	WORLD_UNTIL(h->w, fake_guest_calls(h->w->guests, FAKE_GUEST_CONFIGURE) > before);
	assert_int_equal(http_json(h, "DELETE", http_at(first, ""), h->key, NULL)->status, 200);
	const char *second = http_running(h, "web");
	struct answer *a = client_answer(c, false);

	assert_string_not_equal(second, first);
	assert_int_equal(a->status, 409);
	assert_string_equal(answer_text(a, "error.type"), "sandbox_ended");
	assert_null(strstr(a->body, second));
	answer_free(a);
	client_free(c);
}

static void test_list_pages_and_filters(void **state)
{
	struct answer *a;
	unsigned seen = 0;
	char target[256] = "/v1/sandboxes?limit=2";

	(void)state;
	for (int i = 0; i < 5; i++) {
		_cleanup_free_ char *body = xasprintf("{\"metadata\":{\"n\":\"%d\"}}", i);

		assert_int_equal(http_json(h, "POST", "/v1/sandboxes", h->key, body)->status, 201);
	}
	for (;;) {
		a = http_get(h, h->key, target);
		assert_int_equal(a->status, 200);
		seen += (unsigned)json_object_array_length(json_object_object_get(a->json, "data"));
		if (!answer_text(a, "next_cursor")) {
			break;
		}
		snprintf(target, sizeof target, "/v1/sandboxes?limit=2&cursor=%s",
			answer_text(a, "next_cursor"));
	}
	assert_int_equal(seen, 5);
	a = http_get(h, h->key, "/v1/sandboxes?metadata.n=3");
	assert_string_equal(answer_text(a, "data.0.metadata.n"), "3");
	assert_null(answer_text(a, "data.1"));
	http_json(h, "DELETE", http_at(answer_text(a, "data.0.id"), ""), h->key, NULL);
	a = http_get(h, h->key, "/v1/sandboxes?metadata.n=3");
	assert_null(answer_text(a, "data.0"));
	a = http_get(h, h->key, "/v1/sandboxes?metadata.n=3&status=all");
	assert_string_equal(answer_text(a, "data.0.status"), "deleted");
	assert_int_equal(http_get(h, h->key, "/v1/sandboxes?cursor=x")->status, 400);
	assert_int_equal(http_get(h, h->key, "/v1/sandboxes?cursor=1.sb_x")->status, 400);
	assert_int_equal(http_get(h, h->key, "/v1/sandboxes?account=acme")->status, 403);
}

/* ---- who may ---- */

static void test_a_key_is_needed(void **state)
{
	struct answer *a;
	_cleanup_free_ char *header = xasprintf("X-Api-Key: %s\r\n", h->key);

	(void)state;
	a = http_get(h, NULL, "/v1/sandboxes");
	assert_int_equal(a->status, 401);
	assert_string_equal(answer_text(a, "error.type"), "unauthenticated");
	assert_string_equal(answer_header(a, "WWW-Authenticate"), "Bearer");
	assert_string_equal(answer_text(a, "error.request_id"), answer_header(a, "X-Request-Id"));
	assert_int_equal(http_get(h, "pdk_nonsense", "/v1/sandboxes")->status, 401);
	a = http_request(h, "GET", "/v1/sandboxes", NULL, header, NULL, NULL, 0);
	assert_int_equal(a->status, 200);
	/* Arguments aren't looked at before: they'd tell strangers about the service. */
	assert_int_equal(http_json(h, "POST", "/v1/sandboxes", NULL, "{\"x\":1}")->status, 401);
}

static void test_a_revoked_key_stops_at_once(void **state)
{
	struct client *c = client_new(h);
	_cleanup_free_ char *target = xasprintf("/v1/admin/keys/%s", h->key_id);
	struct answer *a;

	(void)state;
	client_request(c, "GET", "/v1/sandboxes", h->key, NULL, NULL, NULL, 0);
	a = client_answer(c, false);
	assert_int_equal(a->status, 200);
	answer_free(a);
	a = http_admin(h, "DELETE", target, NULL);
	assert_int_equal(a->status, 200);
	assert_non_null(answer_text(a, "revoked_at"));
	client_request(c, "GET", "/v1/sandboxes", h->key, NULL, NULL, NULL, 0);
	a = client_answer(c, false);
	assert_int_equal(a->status, 401);
	answer_free(a);
	client_free(c);
}

static void test_another_accounts_sandbox_does_not_exist(void **state)
{
	const char *id = http_running(h, "mine");
	const char *names[] = {id, "mine"};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		for (enum api_op op = 0; op < API_OP_MAX; op++) {
			const struct api_row *row = api_row(op);
			const char *rest = strstr(row->path, "{id}");
			struct answer *a;

			if (!(row->flags & API_SANDBOX)) {
				continue;
			}
			const char *eid = strstr(rest, "{eid}");
			_cleanup_free_ char *target = xasprintf("%s%.*s%s%s%s",
				http_at(names[i], ""), eid ? (int)(eid - rest) - 4 : 100, rest + 4,
				eid ? "ex_none" : "", eid ? eid + 5 : "",
				op == API_FILE_READ ? "?path=x" : "");

			_cleanup_free_ char *handshake = http_handshake(row);
			const char *body = op == API_EXEC ? "{\"command\":\"true\"}"
					   : op == API_FILE_WRITE
						   ? "{\"path\":\"x\",\"content\":\"\"}"
					   : op == API_SANDBOX_EXTEND ? "{\"minutes\":1}"
								      : NULL;

			a = http_request(h, api_method_name(row->method), target, h->other_key,
				handshake, body ? "application/json" : NULL, body,
				body ? strlen(body) : 0);
			if (a->status != 404) {
				fail_msg("%s: %d", row->name, a->status);
			}
			assert_string_equal(answer_text(a, "error.type"), "not_found");
		}
	}
	assert_int_equal(fake_guest_calls(h->w->guests, FAKE_GUEST_EXEC), 0);
	assert_null(answer_text(http_get(h, h->other_key, "/v1/sandboxes?status=all"), "data.0"));
	http_json(h, "DELETE", http_at(id, ""), h->key, NULL);
	assert_int_equal(http_get(h, h->other_key, http_at(id, ""))->status, 404);
	assert_int_equal(http_json(h, "DELETE", http_at(id, ""), h->other_key, NULL)->status, 404);
}

static void test_strays_are_told_and_removed_through_the_admin_socket(void **state)
{
	const char *id = http_running(h, NULL);
	struct answer *a;

	(void)state;
	assert_int_equal(http_json(h, "POST", "/v1/admin/strays", h->key, "{}")->status, 404);
	a = http_admin(h, "POST", "/v1/admin/strays", "{}");
	assert_int_equal(a->status, 200);
	assert_string_equal(answer_text(a, "left"), "0");
	fake_hv_add(h->w->hv, "sb_00000000000000000001")->is_foreign = true;
	/* Beyond the clock, so that the daemon doesn't take it first. */
	fake_hv_add_residue(h->w->hv, HV_RESIDUE_LOG, "", "young", clock_wall_ms() + 3600000);
	a = http_admin(h, "POST", "/v1/admin/strays", "{\"reap\":true,\"all_instances\":true}");
	assert_int_equal(a->status, 200);
	assert_string_equal(answer_text(a, "data.0.kind"), "domain");
	assert_string_equal(answer_text(a, "data.0.instance"), FAKE_OTHER_INSTANCE);
	assert_string_equal(answer_text(a, "data.0.id"), "sb_00000000000000000001");
	assert_string_equal(answer_text(a, "data.0.reaped"), "false");
	assert_null(answer_text(a, "data.0.error"));
	assert_null(answer_text(a, "data.1.kind"));
	assert_string_equal(answer_text(a, "left"), "0");
	assert_string_equal(answer_text(a, "young"), "1");
	/* Its text is for the log. */
	fake_hv_script(h->w->hv, FAKE_HV_RESIDUE_REMOVE, &(struct fake_script){.mode = FAKE_FAIL});
	fake_hv_add_residue(h->w->hv, HV_RESIDUE_LOG, "", "old \xff", 1);
	a = http_admin(h, "POST", "/v1/admin/strays", "{\"reap\":true}");
	assert_string_equal(answer_text(a, "left"), "1");
	assert_string_equal(answer_text(a, "data.0.what"), "old \xef\xbf\xbd");
	assert_string_equal(answer_text(a, "data.0.error"), "internal error; the log has more");
	assert_null(strstr(a->body, "scripted"));
	fake_hv_script(h->w->hv, FAKE_HV_RESIDUE_REMOVE, NULL);
	a = http_admin(h, "POST", "/v1/admin/strays", "{\"reap\":true}");
	assert_string_equal(answer_text(a, "reaped"), "1");
	assert_string_equal(answer_text(a, "left"), "0");
	assert_int_equal(
		http_admin(h, "POST", "/v1/admin/strays", "{\"reap\":\"yes\"}")->status, 400);
	assert_int_equal(fake_hv_count(h->w->hv), 2);
	assert_non_null(fake_hv_find(h->w->hv, id));
}

static void test_a_client_that_leaves_ends_its_search_for_strays(void **state)
{
	struct client *c = client_new_admin(h);

	(void)state;
	fake_hv_script(h->w->hv, FAKE_HV_SURVEY, &(struct fake_script){.mode = FAKE_HOLD});
	client_request(c, "POST", "/v1/admin/strays", NULL, NULL, "application/json", "{}", 2);
	WORLD_UNTIL(h->w, fake_hv_held(h->w->hv, FAKE_HV_SURVEY) == 1);
	client_free(c);
	world_run(h->w, 50);
	fake_hv_release(h->w->hv, FAKE_HV_SURVEY);
	assert_int_equal(http_admin(h, "POST", "/v1/admin/strays", "{}")->status, 200);
}

static void test_admin_routes_are_on_the_socket_alone(void **state)
{
	struct answer *a;

	(void)state;
	assert_int_equal(http_get(h, h->key, "/v1/admin/accounts")->status, 404);
	a = http_admin(h, "POST", "/v1/admin/accounts", "{\"name\":\"third\"}");
	assert_int_equal(a->status, 201);
	assert_int_equal(
		http_admin(h, "POST", "/v1/admin/accounts", "{\"name\":\"third\"}")->status, 409);
	a = http_admin(h, "GET", "/v1/admin/accounts", NULL);
	assert_string_equal(answer_text(a, "data.2.name"), "third");
	assert_string_equal(answer_text(a, "data.0.used.sandboxes"), "0");
	a = http_admin(h, "POST", "/v1/admin/keys", "{\"account\":\"third\",\"name\":\"laptop\"}");
	assert_int_equal(a->status, 201);
	assert_int_equal(http_get(h, answer_text(a, "key"), "/v1/sandboxes")->status, 200);
	a = http_admin(h, "GET", "/v1/admin/keys?account=third", NULL);
	assert_string_equal(answer_text(a, "data.0.name"), "laptop");
	assert_null(answer_text(a, "data.0.key"));
	assert_null(strstr(a->body, "pdk_"));
	a = http_admin(h, "POST", "/v1/admin/keys", "{\"account\":\"nobody\"}");
	assert_int_equal(a->status, 404);
	assert_int_equal(http_admin(h, "DELETE", "/v1/admin/keys/ky_x", NULL)->status, 404);
	a = http_admin(h, "GET", "/v1/admin/images", NULL);
	assert_string_equal(answer_text(a, "data.0.name"), "minimal");
	a = http_admin(h, "GET", "/v1/admin/status", NULL);
	assert_string_equal(answer_text(a, "ready"), "true");
	assert_int_equal(http_admin(h, "GET", "/v1/admin/doctor", NULL)->status, 503);
}

static void test_an_administrator_sees_every_sandbox(void **state)
{
	const char *id = http_running(h, "mine");
	struct answer *a = http_admin(h, "GET", http_at(id, ""), NULL);

	(void)state;
	assert_int_equal(a->status, 200);
	assert_string_equal(answer_text(a, "account"), h->account);
	assert_int_equal(http_admin(h, "GET", http_at("mine", ""), NULL)->status, 404);
	assert_int_equal(http_admin(h, "POST", "/v1/sandboxes", "{}")->status, 403);
	a = http_admin(h, "GET", "/v1/sandboxes?account=rivals", NULL);
	assert_null(answer_text(a, "data.0"));
	a = http_admin(h, "GET", "/v1/sandboxes?account=acme", NULL);
	assert_string_equal(answer_text(a, "data.0.id"), id);
	assert_int_equal(http_admin(h, "DELETE", http_at(id, ""), NULL)->status, 200);
}

static void test_anonymous_routes(void **state)
{
	struct answer *a = http_get(h, NULL, "/v1/service");

	(void)state;
	assert_int_equal(a->status, 200);
	assert_string_equal(answer_text(a, "sizes.0.name"), "tiny");
	assert_string_equal(answer_text(a, "limits.sandboxes"), "20");
	assert_string_equal(answer_text(a, "images.0"), "minimal");
	assert_string_equal(answer_text(a, "default_network"), "none");
	assert_non_null(answer_text(a, "network_reason"));
	assert_string_equal(answer_text(http_get(h, NULL, "/healthz"), "status"), "ok");
	assert_string_equal(answer_text(http_get(h, NULL, "/readyz"), "status"), "ready");
	a = http_get(h, NULL, "/openapi.json");
	assert_string_equal(answer_text(a, "openapi"), "3.1.0");

	sandboxes_set_egress(h->w->all, true, NULL);
	a = http_get(h, NULL, "/v1/service");
	assert_string_equal(answer_text(a, "default_network"), "egress");
	ops_shut(h->ops);
	assert_int_equal(http_get(h, NULL, "/healthz")->status, 200);
	a = http_get(h, NULL, "/readyz");
	assert_int_equal(a->status, 503);
	assert_string_equal(answer_text(a, "error.message"), "the service is stopping");
	assert_int_equal(http_get(h, h->key, "/v1/sandboxes")->status, 503);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, http_set_up, http_tear_down)
		T(test_create_exec_delete),
		T(test_create_without_waiting),
		T(test_failed_creation_says_why),
		T(test_sizes),
		T(test_an_environment_has_a_limit_as_a_whole),
		T(test_quota_names_its_limit),
		T(test_idempotency_key),
		T(test_extend_moves_the_expiry),
		T(test_extending_a_name_that_is_given_away_meanwhile),
		T(test_list_pages_and_filters),
		T(test_a_key_is_needed),
		T(test_a_revoked_key_stops_at_once),
		T(test_another_accounts_sandbox_does_not_exist),
		T(test_admin_routes_are_on_the_socket_alone),
		T(test_strays_are_told_and_removed_through_the_admin_socket),
		T(test_a_client_that_leaves_ends_its_search_for_strays),
		T(test_an_administrator_sees_every_sandbox),
		T(test_anonymous_routes),
#undef T
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
