#include "daemon/files_limit.h"

#include "base/macros.h"

rlim_t files_limit_raise(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0) {
		return 0;
	}
	rlim_t wanted = MIN(limit.rlim_max, (rlim_t)FILES_LIMIT);

	if (limit.rlim_cur >= wanted) {
		return limit.rlim_cur;
	}
	const struct rlimit raised = {.rlim_cur = wanted, .rlim_max = limit.rlim_max};

	return setrlimit(RLIMIT_NOFILE, &raised) < 0 ? limit.rlim_cur : wanted;
}
