#include "src/env.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/options.h"

#define SYSTEM_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

static char base_text[2][ENV_BASE_MAX][300];
static size_t base_count[2];
static char *configured[PROTO_ENV_MAX];
static size_t configured_count;
static size_t configured_bytes;
static const char *shell = "/bin/sh";

__attribute__((format(printf, 2, 3))) static void add_base(bool is_root, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(base_text[is_root][base_count[is_root]++], sizeof base_text[0][0], fmt, args);
	va_end(args);
}

void env_init(void)
{
	if (access("/bin/bash", X_OK) == 0) {
		shell = "/bin/bash";
	}
	for (int is_root = 0; is_root < 2; is_root++) {
		const char *home = is_root ? "/root" : options.home;
		const char *user = is_root ? "root" : options.user;

		if (is_root) {
			add_base(is_root, "PATH=%s", SYSTEM_PATH);
		} else {
			add_base(is_root, "PATH=%.200s/.local/bin:%s", home,
				"/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin");
		}
		add_base(is_root, "HOME=%s", home);
		add_base(is_root, "USER=%s", user);
		add_base(is_root, "LOGNAME=%s", user);
		add_base(is_root, "SHELL=%s", shell);
		add_base(is_root, "LANG=C.UTF-8");
		add_base(is_root, "TERM=" ENV_NO_TERMINAL);
	}
}

const char *env_shell(void)
{
	return shell;
}

void env_set_ca(const char *bundle, const char *extra)
{
	static bool is_set;

	for (int is_root = 0; !is_set && is_root < 2; is_root++) {
		add_base(is_root, "SSL_CERT_FILE=%s", bundle);
		add_base(is_root, "CURL_CA_BUNDLE=%s", bundle);
		add_base(is_root, "REQUESTS_CA_BUNDLE=%s", bundle);
		add_base(is_root, "PIP_CERT=%s", bundle);
		add_base(is_root, "GIT_SSL_CAINFO=%s", bundle);
		add_base(is_root, "NODE_EXTRA_CA_CERTS=%s", extra);
	}
	is_set = true;
}

bool env_is_valid(const char *var, size_t len)
{
	const char *equals = memchr(var, '=', len);

	return equals != NULL && equals != var && memchr(var, '\0', len) == NULL;
}

void env_reset_configured(void)
{
	while (configured_count > 0) {
		free(configured[--configured_count]);
	}
	configured_bytes = 0;
}

/* Length of the name with its "=". */
static size_t name_length(const char *var)
{
	return strcspn(var, "=") + 1;
}

/* The slot that holds the same name, or @count. */
static size_t find(char *const *vars, size_t count, const char *var)
{
	size_t len = name_length(var);
	size_t i = 0;

	while (i < count && strncmp(vars[i], var, len) != 0) {
		i++;
	}
	return i;
}

bool env_configure(const char *var, size_t len)
{
	char *copy = strndup(var, len);

	if (copy == NULL) {
		return false;
	}
	size_t i = find(configured, configured_count, copy);
	size_t old = i < configured_count ? strlen(configured[i]) : 0;

	if (i >= PROTO_ENV_MAX || configured_bytes - old + len > ENV_CONFIGURED_MAX_BYTES) {
		free(copy);
		return false;
	}
	if (i < configured_count) {
		free(configured[i]);
	} else {
		configured_count++;
	}
	configured[i] = copy;
	configured_bytes = configured_bytes - old + len;
	return true;
}

void env_begin(struct env *env, bool is_root)
{
	env->count = 0;
	for (size_t i = 0; i < base_count[is_root]; i++) {
		env->vars[env->count++] = base_text[is_root][i];
	}
	env->vars[env->count] = NULL;
	for (size_t i = 0; i < configured_count; i++) {
		env_put(env, configured[i]);
	}
}

bool env_put(struct env *env, char *var)
{
	size_t i = find(env->vars, env->count, var);

	if (i >= ARRAY_SIZE(env->vars) - 1) {
		return false;
	}
	env->vars[i] = var;
	if (i == env->count) {
		env->vars[++env->count] = NULL;
	}
	return true;
}

const char *env_get(const struct env *env, const char *name)
{
	size_t len = strlen(name);

	for (size_t i = 0; i < env->count; i++) {
		if (strncmp(env->vars[i], name, len) == 0 && env->vars[i][len] == '=') {
			return env->vars[i] + len + 1;
		}
	}
	return NULL;
}
