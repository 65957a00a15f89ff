#include "ops/socket.h"

size_t op_socket_room(const struct op_socket *socket)
{
	return socket->class->room(socket);
}

void op_socket_send(struct op_socket *socket, bool is_text, const void *data, size_t len)
{
	socket->class->send(socket, is_text, data, len);
}

void op_socket_pause(struct op_socket *socket, bool is_paused)
{
	socket->class->pause(socket, is_paused);
}

void op_socket_close(struct op_socket *socket, enum op_socket_code code, const char *reason)
{
	socket->class->close(socket, code, reason);
}
