#include "netfilter/nft.h"

#include <errno.h>
#include <libmnl/libmnl.h>
#include <linux/netlink.h>
#include <nftables/libnftables.h>
#include <pthread.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/xalloc.h"

DEFINE_CLEANUP(struct nft_ctx *, nft_ctx_free)
#define _cleanup_nft_ctx_ _cleanup_(nft_ctx_free_p)

static pthread_mutex_t library = PTHREAD_MUTEX_INITIALIZER;

/* The library ends the process when it can't have such a socket, so try that first. */
static int check_netlink(struct err *err)
{
	struct mnl_socket *socket = mnl_socket_open2(NETLINK_NETFILTER, SOCK_CLOEXEC);

	if (!socket) {
		return err_set_at(err, ERR_UNAVAILABLE, errno, __FILE__, __LINE__,
			"this kernel offers no nftables");
	}
	mnl_socket_close(socket);
	return 0;
}

/* The first line of what the library says; the rest draws arrows under our text. */
static int refuse(struct err *err, const char *what, const char *said)
{
	int len = (int)strcspn(said, "\n");

	if (strstr(said, "Operation not permitted")) {
		return err_set(err, ERR_FORBIDDEN, "no right to change nftables");
	}
	if (strstr(said, "No such file or directory") && strcmp(what, "list") == 0) {
		return err_set(err, ERR_NOT_FOUND, "the table isn't there");
	}
	return err_set(err, ERR_UNAVAILABLE, "can't %s the nftables table: %.*s", what, len, said);
}

static int run(const char *what, const char *command, char **ret_output, struct err *err)
{
	_cleanup_nft_ctx_ struct nft_ctx *ctx = nft_ctx_new(NFT_CTX_DEFAULT);

	if (!ctx || nft_ctx_buffer_output(ctx) != 0 || nft_ctx_buffer_error(ctx) != 0) {
		return err_set(err, ERR_INTERNAL, "libnftables doesn't start");
	}
	nft_ctx_output_set_flags(ctx, NFT_CTX_OUTPUT_STATELESS | NFT_CTX_OUTPUT_NUMERIC_ALL);
	if (nft_run_cmd_from_buffer(ctx, command) != 0) {
		return refuse(err, what, nft_ctx_get_error_buffer(ctx));
	}
	if (ret_output) {
		*ret_output = xstrdup(nft_ctx_get_output_buffer(ctx));
	}
	return 0;
}

static int run_alone(const char *what, const char *command, char **ret_output, struct err *err)
{
	if (check_netlink(err) < 0) {
		return -1;
	}
	pthread_mutex_lock(&library);
	int rc = run(what, command, ret_output, err);
	pthread_mutex_unlock(&library);
	return rc;
}

int nft_apply_blocking(const char *text, struct err *err)
{
	return run_alone("install", text, NULL, err);
}

char *nft_list_blocking(const char *table, struct err *err)
{
	_cleanup_free_ char *command = xasprintf("list table inet %s", table);
	char *text = NULL;

	return run_alone("list", command, &text, err) < 0 ? NULL : text;
}

int nft_remove_blocking(const char *table, struct err *err)
{
	/* Adding it first makes the removal of one that isn't there succeed. */
	_cleanup_free_ char *command = xasprintf(
		"add table inet %s\ndelete table inet %s\n", table, table);

	return run_alone("remove", command, NULL, err);
}
