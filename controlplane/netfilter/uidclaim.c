#include "netfilter/uidclaim.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/xalloc.h"

#define CLAIM_MAX   16384
#define STATUS_MAX  65536
#define MAP_MAX     65536
#define ACCOUNT_MAX 4096 /* bytes of one line */

DEFINE_CLEANUP(DIR *, closedir)

/* ---- claims ---- */

static const char *text_of(json_object *obj, const char *key)
{
	json_object *value;

	if (!json_object_object_get_ex(obj, key, &value) ||
		!json_object_is_type(value, json_type_string)) {
		return NULL;
	}
	return json_object_get_string(value);
}

static int64_t number_of(json_object *obj, const char *key)
{
	json_object *value;

	if (!json_object_object_get_ex(obj, key, &value) ||
		!json_object_is_type(value, json_type_int)) {
		return -1;
	}
	return json_object_get_int64(value);
}

static int decode(json_object *obj, struct uidclaim *ret)
{
	const char *instance = text_of(obj, "instance");
	const char *state_dir = text_of(obj, "state_dir");
	int64_t first = number_of(obj, "first");
	int64_t count = number_of(obj, "count");

	if (!instance || !state_dir || strlen(instance) >= sizeof ret->instance ||
		strlen(state_dir) >= sizeof ret->state_dir || first < 1 || first >= UINT32_MAX ||
		count < 1 || count > UIDRANGE_COUNT_MAX || first + count > UINT32_MAX) {
		return -1;
	}
	strcpy(ret->instance, instance);
	strcpy(ret->state_dir, state_dir);
	ret->range = (struct uidrange){.first = (uid_t)first, .count = (unsigned)count};
	return 0;
}

int uidclaim_read(const char *path, struct uidclaim *ret, struct err *err)
{
	_cleanup_free_ char *text = NULL;
	struct err why;
	size_t len;

	if (fs_read(path, CLAIM_MAX, &text, &len, err) != 0) {
		return -1;
	}
	_cleanup_json_ json_object *obj = json_parse(text, len, &why);

	if (!obj || !json_object_is_type(obj, json_type_object) || decode(obj, ret) != 0) {
		return err_set(err, ERR_INTERNAL,
			"%s is damaged: remove it if no sandbox of its instance runs", path);
	}
	return 0;
}

int uidclaim_write(const char *path, const struct uidclaim *claim, struct err *err)
{
	_cleanup_json_ json_object *obj = json_object_new_object();
	size_t len;

	json_object_object_add(obj, "instance", json_object_new_string(claim->instance));
	json_object_object_add(obj, "state_dir", json_object_new_string(claim->state_dir));
	json_object_object_add(obj, "first", json_object_new_int64(claim->range.first));
	json_object_object_add(obj, "count", json_object_new_int64(claim->range.count));
	const char *text = json_text(obj, &len);

	return fs_write_atomic(path, text, len, 0644, err);
}

/* ---- use ---- */

static bool holds(const struct uidrange *range, uint64_t uid)
{
	return uid >= range->first && uid < (uint64_t)range->first + range->count;
}

static bool overlaps(const struct uidrange *range, uint64_t first, uint64_t count)
{
	return count > 0 && first < (uint64_t)range->first + range->count &&
	       range->first < first + count;
}

bool uidrange_overlap(const struct uidrange *a, const struct uidrange *b)
{
	return overlaps(a, b->first, b->count);
}

/* Real, effective, saved and file-system uid: any of them makes the process one of the range. */
static bool status_is_in(
	const char *status, const struct uidrange *range, const struct uidrange *except)
{
	const char *line = strstr(status, "\nUid:");
	uint64_t uid[4];

	if (!line || sscanf(line + 5, "%" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64, &uid[0],
			     &uid[1], &uid[2], &uid[3]) != 4) {
		return false;
	}
	for (size_t i = 0; i < ARRAY_SIZE(uid); i++) {
		if (holds(range, uid[i]) && (!except || !holds(except, uid[i]))) {
			return true;
		}
	}
	return false;
}

int uiduse_find_process(const char *proc_dir, const struct uidrange *range,
	const struct uidrange *except, bool *ret, struct err *err)
{
	_cleanup_(closedir_p) DIR *dir = opendir(proc_dir);
	struct dirent *entry;

	*ret = false;
	if (!dir) {
		return err_sys(err, errno, "open %s", proc_dir);
	}
	while (!*ret && (entry = readdir(dir))) {
		_cleanup_free_ char *path = NULL;
		_cleanup_free_ char *status = NULL;
		struct err why;

		if (!isdigit((unsigned char)entry->d_name[0])) {
			continue;
		}
		path = xasprintf("%s/%s/status", proc_dir, entry->d_name);
		if (fs_read(path, STATUS_MAX, &status, NULL, &why) == 0) {
			*ret = status_is_in(status, range, except);
		} else if (why.kind != ERR_NOT_FOUND && why.sys != ESRCH) {
			*err = why;
			return -1;
		}
	}
	return 0;
}

/* Field @index (from 0) of a line with colons, as a number; false if it isn't one. */
static bool field(const char *line, unsigned index, uint64_t *ret)
{
	char *end;

	for (; index > 0; index--) {
		line = strchr(line, ':');
		if (!line) {
			return false;
		}
		line++;
	}
	if (!isdigit((unsigned char)*line)) {
		return false;
	}
	errno = 0;
	*ret = strtoull(line, &end, 10);
	return errno == 0 && *ret <= UINT32_MAX && (*end == ':' || *end == '\n' || *end == '\0');
}

/* passwd: name:x:UID:…  subuid: name:FIRST:COUNT */
static int find_in_file(
	const char *path, bool is_passwd, const struct uidrange *range, bool *ret, struct err *err)
{
	_cleanup_fclose_ FILE *file = fopen(path, "re");
	char line[ACCOUNT_MAX];

	if (!file) {
		return errno == ENOENT ? 0 : err_sys(err, errno, "open %s", path);
	}
	while (!*ret && fgets(line, sizeof line, file)) {
		uint64_t first;
		uint64_t count = 1;

		if (line[0] == '#' || !field(line, is_passwd ? 2 : 1, &first) ||
			(!is_passwd && !field(line, 2, &count))) {
			continue;
		}
		*ret = overlaps(range, first, count);
	}
	return 0;
}

int uiduse_find_account(
	const char *etc_dir, const struct uidrange *range, bool *ret, struct err *err)
{
	_cleanup_free_ char *passwd = xasprintf("%s/passwd", etc_dir);
	_cleanup_free_ char *subuid = xasprintf("%s/subuid", etc_dir);

	*ret = false;
	if (find_in_file(passwd, true, range, ret, err) != 0) {
		return -1;
	}
	return find_in_file(subuid, false, range, ret, err);
}

int uiduse_is_mapped(const char *proc_dir, const struct uidrange *range, bool *ret, struct err *err)
{
	_cleanup_free_ char *path = xasprintf("%s/self/uid_map", proc_dir);
	_cleanup_free_ char *text = NULL;
	char *save = NULL;

	*ret = false;
	if (fs_read(path, MAP_MAX, &text, NULL, err) != 0) {
		return -1;
	}
	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		uint64_t first;
		uint64_t count;

		if (sscanf(line, "%" SCNu64 " %*u %" SCNu64, &first, &count) == 2 &&
			range->first >= first &&
			(uint64_t)range->first + range->count <= first + count) {
			*ret = true;
		}
	}
	return 0;
}
