#include "ops/signals.h"

#include <strings.h>

#include "base/parse.h"

#define SIGNAL_MAX 64

/* As on x86 and ARM. */
static const char *const names[] = {NULL, "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE",
	"KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP",
	"TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR",
	"SYS"};

int signal_parse(const char *text, int *ret, struct err *err)
{
	const char *name = strncasecmp(text, "SIG", 3) == 0 ? text + 3 : text;
	struct err ignored;
	int64_t number;

	for (size_t i = 1; i < ARRAY_SIZE(names); i++) {
		if (strcasecmp(names[i], name) == 0) {
			*ret = (int)i;
			return 0;
		}
	}
	if (parse_int(text, 1, SIGNAL_MAX, &number, &ignored) == 0) {
		*ret = (int)number;
		return 0;
	}
	return err_set(err, ERR_INVALID,
		"\"signal\" must be a name such as TERM, INT, HUP, KILL or USR1, or a number from "
		"1 to %d",
		SIGNAL_MAX);
}
