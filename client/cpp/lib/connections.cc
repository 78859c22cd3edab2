#include "client/cpp/lib/connections.h"

#include <cstdlib>
#include <mutex>
#include <utility>

namespace octavo::client {

MakeConnection ConnectionsTo(std::string address, Login login) {
  // Larger reads: about a third more throughput for volumes. Must be set before gRPC starts.
  static std::once_flag once;
  std::call_once(once,
                 [] { ::setenv("GRPC_EXPERIMENTS", "tcp_frame_size_tuning", /*overwrite=*/0); });
  return [address = std::move(address), login = std::move(login)] {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(64 << 20);
    // a separate connection, because two clients must not share one
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 8 << 20);
    return MakeChannel(address, arguments, login);
  };
}

}  // namespace octavo::client
