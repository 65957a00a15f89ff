#include "tests/lib/cm.h"

#include <errno.h>
#include <netinet/in.h>
#include <sqlite3.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "auth/auth.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "store/store.h"
#include "store/store_key.h"
#include "tests/lib/tmpdir.h"

#define REFUSAL "the API key is not valid"

static char *path;
static struct store *store;
static struct auth *auth;
static struct store_account acme;
static struct store_key key;
static char token[TOKEN_BYTES];

static int make_all(void **state)
{
	struct err err = ERR_INIT;

	if (tmpdir_make(state) != 0) {
		return -1;
	}
	path = tmpdir_path("db");
	store = store_open(path, &err);
	if (!store || store_account_insert(store, "acme", 1, &acme, &err) < 0) {
		return -1;
	}
	auth = auth_new(store);
	return auth_key_create(auth, acme.id, "laptop", token, &key, &err);
}

static int drop_all(void **state)
{
	auth_free(auth);
	store_close(store);
	free(path);
	return tmpdir_drop(state);
}

static int by_bearer(const char *text, struct principal *ret, struct err *err)
{
	_cleanup_free_ char *header = xasprintf("Bearer %s", text);

	return auth_by_header(auth, header, NULL, ret, err);
}

static void run_sql(const char *sql)
{
	sqlite3 *db;

	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
	sqlite3_close(db);
}

/* ---- headers ---- */

static void test_key_gives_its_account(void **state)
{
	struct principal who;
	struct err err;

	(void)state;
	assert_ok(by_bearer(token, &who, &err), &err);
	assert_string_equal(who.account_id, acme.id);
	assert_string_equal(who.account_name, "acme");
	assert_string_equal(who.key_id, key.id);
	assert_int_equal(who.scopes, AUTH_SCOPE_USER);
	assert_false(who.is_admin);
	assert_ok(auth_by_header(auth, NULL, token, &who, &err), &err);
	assert_string_equal(who.key_id, key.id);
}

static void test_header_forms(void **state)
{
	static const struct {
		const char *before;
		const char *after;
		bool is_good;
	} forms[] = {
		{"Bearer ", "", true},
		{"bearer ", "", true},
		{"  BEARER \t ", " \t", true},
		{"Bearer", "", false},
		{"Basic ", "", false},
		{"", "", false},
		{"Bearer ", " x", false},
		{"Bearer x", "", false},
		{"Bearer ", "a", false},
	};
	struct principal who;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(forms); i++) {
		_cleanup_free_ char *text = xasprintf(
			"%s%s%s", forms[i].before, token, forms[i].after);
		struct err err = ERR_INIT;
		int r = auth_by_header(auth, text, NULL, &who, &err);

		if ((r == 0) != forms[i].is_good || (r < 0 && err.kind != ERR_UNAUTHENTICATED)) {
			fail_msg("form %zu: %d, %s", i, r, err.msg);
		}
	}
}

static void test_no_key_and_broken_keys_are_refused(void **state)
{
	static const char *const wrong[] = {"", " ", "Bearer", "Bearer ", "Bearer pdk_",
		"Bearer  \t", "Bearer pdk_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};
	struct principal who;
	struct err err;

	(void)state;
	assert_err(auth_by_header(auth, NULL, NULL, &who, &err), &err, ERR_UNAUTHENTICATED);
	assert_err_says(&err, "x-api-key");
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		assert_err(auth_by_header(auth, wrong[i], NULL, &who, &err), &err,
			ERR_UNAUTHENTICATED);
		assert_err(auth_by_header(auth, NULL, wrong[i], &who, &err), &err,
			ERR_UNAUTHENTICATED);
	}
}

static void test_refusal_never_repeats_the_key(void **state)
{
	char wrong[TOKEN_BYTES];
	struct principal who;
	struct err err;

	(void)state;
	token_mint(wrong);
	assert_err(by_bearer(wrong, &who, &err), &err, ERR_UNAUTHENTICATED);
	assert_string_equal(err.msg, REFUSAL);
}

static void test_two_headers_must_agree(void **state)
{
	_cleanup_free_ char *bearer = xasprintf("Bearer %s", token);
	char second[TOKEN_BYTES];
	struct principal who;
	struct store_key other;
	struct err err;

	(void)state;
	assert_ok(auth_key_create(auth, acme.id, "", second, &other, &err), &err);
	assert_ok(auth_by_header(auth, bearer, token, &who, &err), &err);
	assert_err(auth_by_header(auth, bearer, second, &who, &err), &err, ERR_UNAUTHENTICATED);
	assert_err_says(&err, "different keys");
	assert_err(
		auth_by_header(auth, "Basic eA==", token, &who, &err), &err, ERR_UNAUTHENTICATED);
}

/* ---- keys that stop ---- */

static void test_revoked_key_stops_at_once(void **state)
{
	struct principal who;
	struct err err;

	(void)state;
	assert_ok(by_bearer(token, &who, &err), &err);
	assert_ok(auth_key_revoke(auth, key.id, &err), &err);
	assert_err(by_bearer(token, &who, &err), &err, ERR_UNAUTHENTICATED);
	assert_string_equal(err.msg, REFUSAL);
	assert_ok(auth_key_revoke(auth, key.id, &err), &err);
	assert_err(auth_key_revoke(auth, "ky_none", &err), &err, ERR_NOT_FOUND);
}

static void test_key_revoked_past_us_stops_at_once(void **state)
{
	struct principal who;
	struct err err;

	(void)state;
	assert_ok(by_bearer(token, &who, &err), &err);
	run_sql("UPDATE api_key SET revoked_at = 1");
	assert_err(by_bearer(token, &who, &err), &err, ERR_UNAUTHENTICATED);
}

static void test_other_keys_go_on_when_one_is_revoked(void **state)
{
	char second[TOKEN_BYTES];
	struct store_key other;
	struct principal who;
	struct err err;

	(void)state;
	assert_ok(auth_key_create(auth, acme.id, "", second, &other, &err), &err);
	assert_ok(auth_key_revoke(auth, key.id, &err), &err);
	assert_ok(by_bearer(second, &who, &err), &err);
}

static void test_keys_of_a_disabled_account_are_refused(void **state)
{
	struct principal who;
	struct err err;

	(void)state;
	assert_ok(store_account_set_disabled(store, acme.id, true, &err), &err);
	assert_err(by_bearer(token, &who, &err), &err, ERR_UNAUTHENTICATED);
	assert_string_equal(err.msg, REFUSAL);
	assert_ok(store_account_set_disabled(store, acme.id, false, &err), &err);
	assert_ok(by_bearer(token, &who, &err), &err);
}

/* ---- creation ---- */

static void test_only_the_hash_of_a_key_is_stored(void **state)
{
	_cleanup_free_ char *wal = tmpdir_path("db-wal");
	_cleanup_free_ char *content = NULL;
	_cleanup_free_ char *log = NULL;
	size_t len = 0;
	size_t log_len = 0;
	struct err err;

	(void)state;
	assert_string_equal(key.hint, token + TOKEN_LENGTH - 4);
	assert_string_equal(key.name, "laptop");
	assert_ok(fs_read(path, 10 << 20, &content, &len, &err), &err);
	assert_ok(fs_read(wal, 10 << 20, &log, &log_len, &err), &err);
	/* The log has the row (its label is there) and not the key. */
	assert_non_null(memmem(log, log_len, "laptop", 6));
	assert_null(memmem(log, log_len, token + 4, 36));
	assert_null(memmem(content, len, token + 4, 36));
}

static void test_key_needs_an_account_and_a_sound_name(void **state)
{
	char second[TOKEN_BYTES];
	struct store_key other;
	struct err err;

	(void)state;
	assert_err(auth_key_create(auth, "ac_none", "", second, &other, &err), &err, ERR_NOT_FOUND);
	assert_err(auth_key_create(auth, "ac_far_too_long_to_be_an_id_of_anything_that_we_made", "",
			   second, &other, &err),
		&err, ERR_NOT_FOUND);
	assert_err(
		auth_key_create(auth, acme.id, "no good", second, &other, &err), &err, ERR_INVALID);
}

/* ---- last use ---- */

static int64_t last_used(void)
{
	struct store_key got;
	struct err err;

	assert_ok(store_key_get(store, key.id, &got, &err), &err);
	return got.last_used_at_ms;
}

static void test_last_use_is_written_at_most_once_a_minute(void **state)
{
	struct principal who;
	struct err err;

	(void)state;
	assert_int_equal(last_used(), 0);
	assert_ok(by_bearer(token, &who, &err), &err);
	int64_t first = last_used();
	assert_true(first > 0);
	clock_test_advance(30 * MS_PER_SECOND, 30 * MS_PER_SECOND);
	assert_ok(by_bearer(token, &who, &err), &err);
	assert_int_equal(last_used(), first);
	clock_test_advance(31 * MS_PER_SECOND, 31 * MS_PER_SECOND);
	assert_ok(by_bearer(token, &who, &err), &err);
	assert_true(last_used() >= first + MS_PER_MINUTE);
}

static void test_requests_go_on_where_last_use_cant_be_written(void **state)
{
	struct principal who;
	sqlite3 *other;
	struct err err;

	(void)state;
	assert_int_equal(sqlite3_open(path, &other), SQLITE_OK);
	assert_int_equal(sqlite3_exec(other, "BEGIN EXCLUSIVE", NULL, NULL, NULL), SQLITE_OK);
	assert_ok(by_bearer(token, &who, &err), &err);
	/* Only the first one waits for the lock. */
	uint64_t start = clock_monotonic_ms();

	for (int i = 0; i < 50; i++) {
		assert_ok(by_bearer(token, &who, &err), &err);
	}
	assert_true(clock_monotonic_ms() - start < 50 * 100);
	sqlite3_close(other);
	assert_int_equal(last_used(), 0);
}

/* ---- peers ---- */

static void test_own_user_is_an_administrator(void **state)
{
	struct principal who;
	struct err err;
	int pair[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	assert_ok(auth_by_peer(auth, pair[0], &who, &err), &err);
	assert_true(who.is_admin);
	assert_int_equal(who.scopes, AUTH_SCOPE_USER | AUTH_SCOPE_ADMIN);
	assert_string_equal(who.account_id, "");
	assert_string_equal(who.key_id, "");
	close(pair[0]);
	close(pair[1]);
}

static void test_tcp_peer_is_no_administrator(void **state)
{
	struct principal who;
	struct err err = ERR_INIT;
	_cleanup_close_ int fd = socket(AF_INET, SOCK_STREAM, 0);

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(auth_by_peer(auth, fd, &who, &err), -1);
}

/* Connects as nobody and waits for the end. */
static pid_t connect_as_nobody(const struct sockaddr_un *address)
{
	pid_t pid = fork();

	if (pid == 0) {
		int fd = socket(AF_UNIX, SOCK_STREAM, 0);
		char byte;

		if (setresuid(65534, 65534, 65534) != 0 ||
			connect(fd, (const struct sockaddr *)address, sizeof(*address)) != 0) {
			_exit(1);
		}
		_exit(read(fd, &byte, 1) == 0 ? 0 : 1);
	}
	return pid;
}

static void test_other_user_is_no_administrator(void **state)
{
	_cleanup_close_ int listener = socket(AF_UNIX, SOCK_STREAM, 0);
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct principal who;
	struct err err;
	int status;

	(void)state;
	if (geteuid() != 0) {
		skip();
	}
	snprintf(address.sun_path, sizeof(address.sun_path), "%s/sock", tmpdir);
	assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(listener, 1), 0);
	assert_int_equal(chmod(tmpdir, 0755), 0);
	assert_int_equal(chmod(address.sun_path, 0777), 0);
	pid_t pid = connect_as_nobody(&address);
	int fd = accept(listener, NULL, NULL);

	assert_true(fd >= 0);
	assert_err(auth_by_peer(auth, fd, &who, &err), &err, ERR_FORBIDDEN);
	close(fd);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, make_all, drop_all)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_key_gives_its_account),
		TEST(test_header_forms),
		TEST(test_no_key_and_broken_keys_are_refused),
		TEST(test_refusal_never_repeats_the_key),
		TEST(test_two_headers_must_agree),
		TEST(test_revoked_key_stops_at_once),
		TEST(test_key_revoked_past_us_stops_at_once),
		TEST(test_other_keys_go_on_when_one_is_revoked),
		TEST(test_keys_of_a_disabled_account_are_refused),
		TEST(test_only_the_hash_of_a_key_is_stored),
		TEST(test_key_needs_an_account_and_a_sound_name),
		TEST(test_last_use_is_written_at_most_once_a_minute),
		TEST(test_requests_go_on_where_last_use_cant_be_written),
		TEST(test_own_user_is_an_administrator),
		TEST(test_tcp_peer_is_no_administrator),
		TEST(test_other_user_is_no_administrator),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
