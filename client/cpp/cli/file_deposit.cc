#include "client/cpp/cli/file_deposit.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/socket.h>
#include <sys/un.h>

#include "absl/strings/str_cat.h"

#include "octavo/handoff/v1/handoff.pb.h"
#include "octavo/v1/ingest.grpc.pb.h"

namespace octavo::cli {
namespace {

namespace wire = handoff::v1;

constexpr uint32_t kVersion = 1;  // of the wire, that this program speaks
constexpr size_t kMostBytes = 64 << 10;
constexpr timeval kPatience{.tv_sec = 30, .tv_usec = 0};

grpc::Status Failed(grpc::StatusCode code, const std::string& what) { return {code, what}; }
grpc::Status OfErrno(const std::string& what) {
  return Failed(
      errno == EACCES ? grpc::StatusCode::PERMISSION_DENIED : grpc::StatusCode::UNAVAILABLE,
      absl::StrCat(what, ": ", std::strerror(errno)));
}

UniqueFd Connect(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return UniqueFd();
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  UniqueFd connection(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!connection ||
      ::connect(connection.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return UniqueFd();
  (void)::setsockopt(connection.get(), SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof kPatience);
  return connection;
}

/// Sends a message, with a descriptor unless it is -1.
bool Send(int socket, const wire::ClientMessage& message, int descriptor) {
  std::string bytes = message.SerializeAsString();
  iovec part{.iov_base = bytes.data(), .iov_len = bytes.size()};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  if (descriptor >= 0) {
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(rights), &descriptor, sizeof descriptor);
  }
  return ::sendmsg(socket, &header, MSG_NOSIGNAL) >= 0;
}

/// The next message, if it says `wanted`; else why not.
grpc::Status Receive(int socket, wire::ServerMessage::BodyCase wanted) {
  std::string bytes(kMostBytes, '\0');
  const ssize_t got = ::recv(socket, bytes.data(), bytes.size(), 0);
  if (got <= 0)
    return Failed(grpc::StatusCode::UNAVAILABLE, "the server ended the hand-over connection");
  wire::ServerMessage message;
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(got)))
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
  wire::ClientMessage hello, present;
  hello.set_request(1);
  hello.mutable_hello()->mutable_versions()->set_oldest(kVersion);
  hello.mutable_hello()->mutable_versions()->set_newest(kVersion);
  hello.mutable_hello()->set_purpose(wire::PURPOSE_FILE);
  present.set_request(2);
  present.mutable_present()->set_ticket(answer.ticket());
  if (!Send(connection.get(), hello, -1)) *status = OfErrno("the hand-over socket");
  if (status->ok()) *status = Receive(connection.get(), wire::ServerMessage::kWelcome);
  if (status->ok() && !Send(connection.get(), present, file.get()))
    *status = OfErrno("the hand-over socket");
  if (status->ok()) *status = Receive(connection.get(), wire::ServerMessage::kDeposited);
  if (!status->ok()) return nullptr;
  return std::unique_ptr<FileDeposit>(new FileDeposit(std::move(connection), answer.ticket()));
}

}  // namespace octavo::cli
