#pragma once

#include <optional>
#include <string>
#include <sys/types.h>

#include "server/engine/export_store.h"

namespace octavo::rpc {

/// Whether a call comes from the same host, and from which user, by gRPC's text for its peer: "fd:23" (the Unix socket, see
/// listener.h: the user by SO_PEERCRED), "unix:...", "ipv4:127.0.0.1:40000", "ipv6:[::1]:40000" or with its brackets and colons
/// percent-coded (the user by the kernel's table of sockets, where this process may see it).
engine::ExportPeer LocalPeerOf(const std::string& peer);

/// The user of the loopback socket with this local port, from a table in the format of /proc/net/tcp; nothing if it is not in it.
std::optional<uid_t> UserOfSocket(const std::string& table, int port);

}  // namespace octavo::rpc
