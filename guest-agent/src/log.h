#pragma once

/*
 * log - few, short lines to the kernel's log or to stderr
 *
 * Purpose: what an operator needs who looks at a guest's console. At most LOG_PER_SECOND lines a
 *          second; the rest is counted and the count reported.
 * Owns:    the descriptor of /dev/kmsg.
 * Thread:  the agent has one. Never call it between clone and exec.
 * Uses:    util.h.
 *
 * Commands, environments, paths and file contents belong to the user and are never logged.
 */

#include "src/util.h"

#define LOG_PER_SECOND 10u

enum log_level { LOG_LEVEL_ERR = 3, LOG_LEVEL_WARN = 4, LOG_LEVEL_INFO = 6 };

/* From now on lines go to /dev/kmsg. */
void log_to_kernel(void);
void log_line(enum log_level level, const char *fmt, ...) _printf_(2, 3);

#define log_err(...)  log_line(LOG_LEVEL_ERR, __VA_ARGS__)
#define log_warn(...) log_line(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_info(...) log_line(LOG_LEVEL_INFO, __VA_ARGS__)
