#include "client/cpp/cli/file_deposit.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/socket.h>
#include <sys/time.h>

#include "absl/strings/str_cat.h"

#include "octavo/handoff/v1/handoff.pb.h"
#include "octavo/v1/ingest.grpc.pb.h"

#include "client/cpp/wire/handoff_packets.h"

namespace octavo::cli {
namespace {

using handoff::v1::ClientMessage;
using handoff::v1::ServerMessage;

constexpr timeval kPatience{.tv_sec = 30, .tv_usec = 0};

grpc::Status Failed(grpc::StatusCode code, const std::string& what) { return {code, what}; }
grpc::Status OfErrno(const std::string& what) {
  return Failed(
      errno == EACCES ? grpc::StatusCode::PERMISSION_DENIED : grpc::StatusCode::UNAVAILABLE,
      absl::StrCat(what, ": ", std::strerror(errno)));
}

UniqueFd Connect(const std::string& path) {
  UniqueFd connection(wire::ConnectHandoff(path));
  if (connection)
    (void)::setsockopt(connection.get(), SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof kPatience);
  return connection;
}

/// The next message, if it says `wanted`; else why not.
grpc::Status Receive(int socket, ServerMessage::BodyCase wanted) {
  std::string bytes(wire::kMostMessageBytes, '\0');
  const ssize_t got = ::recv(socket, bytes.data(), bytes.size(), 0);
  if (got <= 0)
    return Failed(grpc::StatusCode::UNAVAILABLE, "the server ended the hand-over connection");
  bytes.resize(static_cast<size_t>(got));
  ServerMessage message;
  if (!wire::ParsePacket(bytes, &message))
    return Failed(grpc::StatusCode::INTERNAL, "the server's answer cannot be read");
  if (message.has_refused())
    return Failed(static_cast<grpc::StatusCode>(message.refused().code()),
                  absl::StrCat(message.refused().message(), " [", message.refused().reason(), "]"));
  if (message.body_case() != wanted)
    return Failed(grpc::StatusCode::INTERNAL,
                  "the server gave an answer that this program does not understand");
  return grpc::Status::OK;
}

}  // namespace

std::unique_ptr<FileDeposit> FileDeposit::Make(const Session& session, const std::string& path,
                                               grpc::Status* status) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) {
    *status = OfErrno(absl::StrCat("opening ", path));
    return nullptr;
  }
  std::error_code error;
  v1::OpenDepositRequest request;
  request.set_name(std::filesystem::canonical(path, error).filename().string());
  if (request.name().empty()) request.set_name(".");  // of "/"
  v1::OpenDepositResponse answer;
  *status = v1::IngestService::NewStub(session.channel())
                ->OpenDeposit(session.Context().get(), request, &answer);
  if (!status->ok()) return nullptr;
  UniqueFd connection = Connect(answer.socket_path());
  if (!connection) {
    *status = OfErrno(absl::StrCat("connecting to ", answer.socket_path()));
    return nullptr;
  }
  ClientMessage hello = wire::HelloFor(handoff::v1::PURPOSE_FILE), present;
  hello.set_request(1);
  present.set_request(2);
  present.mutable_present()->set_ticket(answer.ticket());
  if (!wire::SendPacket(connection.get(), hello)) *status = OfErrno("the hand-over socket");
  if (status->ok()) *status = Receive(connection.get(), ServerMessage::kWelcome);
  if (status->ok() && !wire::SendPacket(connection.get(), present, file.get()))
    *status = OfErrno("the hand-over socket");
  if (status->ok()) *status = Receive(connection.get(), ServerMessage::kDeposited);
  if (!status->ok()) return nullptr;
  return std::unique_ptr<FileDeposit>(new FileDeposit(std::move(connection), answer.ticket()));
}

}  // namespace octavo::cli
