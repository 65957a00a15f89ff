#include "base/fault.h"

#ifdef PADDOCK_TEST_HOOKS

#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/xalloc.h"

#define FAULTS_MAX  16
#define POINT_BYTES 64

/* Not one of enum fault_action: nobody lives to see it returned. */
#define FAULT_KILL (-1)

struct fault {
	char point[POINT_BYTES];
	int action;
	unsigned skip;
	unsigned left;
};

static struct {
	bool is_read;
	struct fault all[FAULTS_MAX];
	size_t count;
	fault_watch_fn watch;
	void *watch_arg;
} faults;

static int parse_action(const char *name)
{
	static const struct {
		const char *name;
		int action;
	} actions[] = {{"kill", FAULT_KILL}, {"fail", FAULT_FAIL}, {"hang", FAULT_HANG},
		{"delay", FAULT_DELAY}};

	for (size_t i = 0; i < ARRAY_SIZE(actions); i++) {
		if (strcmp(actions[i].name, name) == 0) {
			return actions[i].action;
		}
	}
	return FAULT_NONE;
}

/* "POINT[#N]:ACTION[:COUNT]" */
static bool parse_one(const char *text, struct fault *ret)
{
	char action[16];
	unsigned from = 1;
	int end = 0;

	*ret = (struct fault){.left = 1};
	(void)sscanf(text, "%63[^:#]%n#%u%n", ret->point, &end, &from, &end);
	text += end;
	end = 0;
	if (from == 0 || sscanf(text, ":%15[^:]%n:%u%n", action, &end, &ret->left, &end) < 1 ||
		text[end] != '\0') {
		return false;
	}
	ret->skip = from - 1;
	ret->action = parse_action(action);
	return ret->action != FAULT_NONE;
}

void fault_set(const char *text)
{
	_cleanup_free_ char *copy = xstrdup(text ? text : "");
	char *rest = copy;

	faults.is_read = true;
	faults.count = 0;
	for (char *item = strsep(&rest, ","); item; item = strsep(&rest, ",")) {
		if (*item == '\0') {
			continue;
		}
		if (faults.count == FAULTS_MAX || !parse_one(item, &faults.all[faults.count++])) {
			log_err("PADDOCK_FAULTS can't be read", "item=%s", item);
			_exit(2);
		}
	}
}

void fault_watch(fault_watch_fn fn, void *arg)
{
	faults.watch = fn;
	faults.watch_arg = arg;
}

enum fault_action fault_at(const char *format, ...)
{
	char point[POINT_BYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(point, sizeof point, format, args);
	va_end(args);
	if (!faults.is_read) {
		fault_set(getenv("PADDOCK_FAULTS"));
	}
	if (faults.watch) {
		faults.watch(faults.watch_arg, point);
	}
	log_debug("fault point", "point=%s", point);
	for (size_t i = 0; i < faults.count; i++) {
		struct fault *fault = &faults.all[i];

		if (fault->left == 0 || strcmp(fault->point, point) != 0) {
			continue;
		}
		if (fault->skip > 0) {
			fault->skip--;
			continue;
		}
		fault->left--;
		log_warn("fault", "point=%s", point);
		if (fault->action == FAULT_KILL) {
			(void)kill(getpid(), SIGKILL);
		}
		return (enum fault_action)fault->action;
	}
	return FAULT_NONE;
}

#endif
