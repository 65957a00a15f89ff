#include "tests/lib/cm.h"

#include "base/cleanup.h"
#include "store/store.h"
#include "store/store_account.h"
#include "store/store_key.h"
#include "tests/lib/tmpdir.h"

static struct store *store;

static int open_new(void **state)
{
	struct err err = ERR_INIT;

	if (tmpdir_make(state) != 0) {
		return -1;
	}
	_cleanup_free_ char *path = tmpdir_path("db");
	store = store_open(path, &err);
	return store ? 0 : -1;
}

static int close_it(void **state)
{
	store_close(store);
	return tmpdir_drop(state);
}

static struct store_account add_account(const char *name)
{
	struct store_account account;
	struct err err;

	assert_ok(store_account_insert(store, name, 42, &account, &err), &err);
	return account;
}

static struct store_key add_key(const char *account, uint8_t hash_byte)
{
	struct store_key key = {.hint = "abcd", .name = "laptop", .created_at_ms = hash_byte};
	struct err err;

	id_make(key.id, ID_KEY);
	memcpy(key.account, account, strlen(account) + 1);
	memset(key.hash, hash_byte, sizeof(key.hash));
	assert_ok(store_key_insert(store, &key, &err), &err);
	return key;
}

/* ---- accounts ---- */

static void test_account_is_found_by_id_and_by_name(void **state)
{
	struct store_account made = add_account("acme");
	struct store_account got;
	struct err err;

	(void)state;
	assert_true(id_is_valid(made.id, ID_ACCOUNT));
	assert_ok(store_account_get(store, made.id, &got, &err), &err);
	assert_string_equal(got.name, "acme");
	assert_int_equal(got.created_at_ms, 42);
	assert_false(got.is_disabled);
	assert_ok(store_account_get_by_name(store, "acme", &got, &err), &err);
	assert_string_equal(got.id, made.id);
	assert_err(store_account_get_by_name(store, "other", &got, &err), &err, ERR_NOT_FOUND);
	assert_err(store_account_get(store, "ac_", &got, &err), &err, ERR_NOT_FOUND);
}

static void test_account_name_is_taken_once(void **state)
{
	struct store_account account;
	struct err err;

	(void)state;
	add_account("acme");
	assert_err(store_account_insert(store, "acme", 1, &account, &err), &err, ERR_CONFLICT);
	assert_err_says(&err, "an account of that name exists already");
}

static void test_account_name_of_63_bytes_is_the_longest(void **state)
{
	char name[NAME_MAX_BYTES + 2];
	struct store_account account;
	struct err err;

	(void)state;
	memset(name, 'a', sizeof(name));
	name[NAME_MAX_BYTES + 1] = '\0';
	assert_err(store_account_insert(store, name, 1, &account, &err), &err, ERR_INVALID);
	name[NAME_MAX_BYTES] = '\0';
	assert_ok(store_account_insert(store, name, 1, &account, &err), &err);
	assert_string_equal(account.name, name);
	assert_err(store_account_insert(store, "Acme_1", 1, &account, &err), &err, ERR_INVALID);
}

static void test_accounts_are_listed_by_name(void **state)
{
	_cleanup_free_ struct store_account *rows = NULL;
	size_t count = 0;
	struct err err;

	(void)state;
	add_account("b");
	add_account("a");
	add_account("c");
	assert_ok(store_account_list(store, &rows, &count, &err), &err);
	assert_int_equal(count, 3);
	assert_string_equal(rows[0].name, "a");
	assert_string_equal(rows[2].name, "c");
}

static void test_account_is_disabled_and_enabled(void **state)
{
	struct store_account account = add_account("acme");
	struct err err;

	(void)state;
	assert_ok(store_account_set_disabled(store, account.id, true, &err), &err);
	assert_ok(store_account_get(store, account.id, &account, &err), &err);
	assert_true(account.is_disabled);
	assert_ok(store_account_set_disabled(store, account.id, false, &err), &err);
	assert_ok(store_account_get(store, account.id, &account, &err), &err);
	assert_false(account.is_disabled);
	assert_err(store_account_set_disabled(store, "ac_none", true, &err), &err, ERR_NOT_FOUND);
}

/* ---- keys ---- */

static void test_key_is_found_by_its_hash_with_its_account(void **state)
{
	struct store_account account = add_account("acme");
	struct store_key made = add_key(account.id, 7);
	struct store_account got_account;
	struct store_key got;
	uint8_t hash[STORE_KEY_HASH_BYTES];
	struct err err;

	(void)state;
	assert_ok(store_key_get_by_hash(store, made.hash, &got, &got_account, &err), &err);
	assert_string_equal(got.id, made.id);
	assert_string_equal(got.account, account.id);
	assert_string_equal(got.name, "laptop");
	assert_string_equal(got.hint, "abcd");
	assert_memory_equal(got.hash, made.hash, sizeof(got.hash));
	assert_int_equal(got.created_at_ms, 7);
	assert_int_equal(got.revoked_at_ms, 0);
	assert_int_equal(got.last_used_at_ms, 0);
	assert_string_equal(got_account.id, account.id);
	assert_string_equal(got_account.name, "acme");
	assert_int_equal(got_account.created_at_ms, 42);

	memcpy(hash, made.hash, sizeof(hash));
	hash[31] ^= 1;
	assert_err(
		store_key_get_by_hash(store, hash, &got, &got_account, &err), &err, ERR_NOT_FOUND);
}

static void test_key_needs_an_account(void **state)
{
	struct store_key key = {.id = "ky_1", .account = "ac_none"};
	struct err err;

	(void)state;
	assert_err(store_key_insert(store, &key, &err), &err, ERR_NOT_FOUND);
	assert_err_says(&err, "no such account");
}

static void test_revocation_keeps_its_first_time(void **state)
{
	struct store_account account = add_account("acme");
	struct store_key key = add_key(account.id, 7);
	struct err err;

	(void)state;
	assert_ok(store_key_revoke(store, key.id, 100, &err), &err);
	assert_ok(store_key_revoke(store, key.id, 200, &err), &err);
	assert_ok(store_key_get(store, key.id, &key, &err), &err);
	assert_int_equal(key.revoked_at_ms, 100);
	assert_err(store_key_revoke(store, "ky_none", 1, &err), &err, ERR_NOT_FOUND);
}

static void test_last_use_is_kept(void **state)
{
	struct store_account account = add_account("acme");
	struct store_key key = add_key(account.id, 7);
	struct err err;

	(void)state;
	assert_ok(store_key_touch(store, key.id, 300, &err), &err);
	assert_ok(store_key_get(store, key.id, &key, &err), &err);
	assert_int_equal(key.last_used_at_ms, 300);
}

static void test_keys_are_listed_of_one_account_or_of_all(void **state)
{
	struct store_account a = add_account("a");
	struct store_account b = add_account("b");
	_cleanup_free_ struct store_key *of_a = NULL;
	_cleanup_free_ struct store_key *all = NULL;
	size_t count = 0;
	struct err err;

	(void)state;
	add_key(a.id, 3);
	add_key(b.id, 2);
	add_key(a.id, 1);
	assert_ok(store_key_list(store, a.id, &of_a, &count, &err), &err);
	assert_int_equal(count, 2);
	assert_int_equal(of_a[0].created_at_ms, 1);
	assert_int_equal(of_a[1].created_at_ms, 3);
	assert_ok(store_key_list(store, NULL, &all, &count, &err), &err);
	assert_int_equal(count, 3);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, open_new, close_it)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_account_is_found_by_id_and_by_name),
		TEST(test_account_name_is_taken_once),
		TEST(test_account_name_of_63_bytes_is_the_longest),
		TEST(test_accounts_are_listed_by_name),
		TEST(test_account_is_disabled_and_enabled),
		TEST(test_key_is_found_by_its_hash_with_its_account),
		TEST(test_key_needs_an_account),
		TEST(test_revocation_keeps_its_first_time),
		TEST(test_last_use_is_kept),
		TEST(test_keys_are_listed_of_one_account_or_of_all),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
