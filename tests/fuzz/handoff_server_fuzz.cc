// The packets of one client at the hand-over socket, to a real FdSocket. Each packet: a byte (how
// many descriptors come with it, and of what), two bytes of length, the packet. 32 equal digits in
// it stand for a valid ticket: 1 to 5 of the purpose of that number, 6 of a grant that refuses.

#include <atomic>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <string>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

#include "gpu/base/status.h"
#include "server/handoff/fd_socket.h"
#include "server/handoff/packets.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/scratch_folder.h"

namespace octavo::handoff {
namespace {

using fuzz::Input;
using fuzz::Require;

constexpr int kMostPackets = 24;  // their answers fit into the connection

/// Answers everything; the socket must call it as fd_socket.h says.
class AnyGrant final : public Grant {
 public:
  AnyGrant(v1::Purpose purpose, bool refuses) : purpose_(purpose), refuses_(refuses) {}
  v1::Purpose purpose() const override { return purpose_; }
  absl::StatusOr<Answer> Open(const Peer&, const v1::Present& request,
                              std::shared_ptr<Link> link) override {
    Require(!TakesDescriptor(purpose_));
    return Opened(request, std::move(link));
  }
  absl::StatusOr<Answer> OpenWith(const UniqueFd& descriptor, const Peer&,
                                  const v1::Present& request, std::shared_ptr<Link> link) override {
    Require(TakesDescriptor(purpose_) && ::fcntl(descriptor.get(), F_GETFD) >= 0);
    return Opened(request, std::move(link));
  }
  absl::StatusOr<Answer> Message(const v1::ClientMessage& request) override {
    Require(open_ && ends_ == 0 && CheckBounds(request).ok());
    Require(!request.has_hello() && !request.has_present() && !request.has_end());
    if (request.has_forget()) return InvalidField("memory", request.forget().ShortDebugString());
    Answer answer;
    answer.message.mutable_exported()->set_resource(request.take().volume());
    return answer;
  }
  void Ended(GrantEnd) override {
    ++ends_;
    link_ = nullptr;
  }
  int ends() const { return ends_; }

 private:
  absl::StatusOr<Answer> Opened(const v1::Present& request, std::shared_ptr<Link> link) {
    Require(!open_ && ends_ == 0 && request.ticket().size() == 32);
    if (refuses_)
      return absl::FailedPreconditionError(absl::StrCat("no: ", request.ShortDebugString()));
    open_ = true;
    link_ = std::move(link);
    v1::ServerMessage unasked;
    unasked.mutable_revoked()->set_name("exports/1");
    (void)link_->Send(std::move(unasked));
    Answer answer{.message = {}, .descriptor = memory_.get(), .keep = nullptr};
    answer.message.mutable_exported()->set_name("exports/1");
    return answer;
  }

  const v1::Purpose purpose_;
  const bool refuses_;
  const UniqueFd memory_{::memfd_create("fuzz", MFD_CLOEXEC)};
  bool open_ = false;
  std::shared_ptr<Link> link_;
  std::atomic<int> ends_{0};
};

UniqueFd Connect(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  Require(fd &&
          ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  return fd;
}

// False if the server has ended the connection.
bool Send(int socket, const std::string& bytes, uint8_t with) {
  const int count = with % 4 == 3 ? 5 : with % 4;
  const UniqueFd sent((with & 4) != 0 ? ::open("/dev/null", O_RDONLY | O_CLOEXEC)
                                      : ::memfd_create("fuzz", MFD_CLOEXEC));
  iovec part{.iov_base = const_cast<char*>(bytes.data()), .iov_len = bytes.size()};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(5 * sizeof(int))] = {};
  if (count > 0) {
    const size_t size = static_cast<size_t>(count) * sizeof(int);
    header.msg_control = control;
    header.msg_controllen = CMSG_SPACE(size);
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(size);
    const int fd = sent.get();
    for (int i = 0; i < count; ++i)
      std::memcpy(CMSG_DATA(rights) + static_cast<size_t>(i) * sizeof fd, &fd, sizeof fd);
  }
  return ::sendmsg(socket, &header, MSG_NOSIGNAL) >= 0;
}

// All answers, until the connection ends: each is a message, and no refusal is longer than clients
// without a library have room for.
void ReadAnswers(int socket) {
  std::vector<char> bytes(kMostMessageBytes);
  for (;;) {
    const ssize_t got = ::recv(socket, bytes.data(), bytes.size(), 0);
    if (got <= 0) return;
    v1::ServerMessage message;
    Require(message.ParseFromArray(bytes.data(), static_cast<int>(got)));
    Require(message.body_case() != v1::ServerMessage::BODY_NOT_SET);
    if (!message.has_refused()) continue;
    Require(message.refused().ByteSizeLong() <= 8000 && message.refused().code() != 0);
    Require(!message.refused().message().empty());
  }
}

void Run(Input input) {
  static const fuzz::ScratchFolder folder;
  static const SystemClock clock;
  const std::string path = folder.Path("h.sock");
  auto socket = FdSocket::Open({.path = path}, &clock);
  Require(socket.ok());
  std::vector<std::shared_ptr<AnyGrant>> grants;
  std::vector<std::pair<std::string, std::string>> tickets;
  for (int i = 1; i <= 6; ++i) {
    grants.push_back(std::make_shared<AnyGrant>(
        i == 6 ? v1::PURPOSE_MEMORY : static_cast<v1::Purpose>(i), i == 6));
    const auto ticket = (*socket)->Issue(grants.back(), std::nullopt);
    Require(ticket.ok() && ticket->nonce.size() == 32);
    tickets.emplace_back(std::string(32, static_cast<char>('0' + i)), ticket->nonce);
  }
  const UniqueFd client = Connect(path);
  for (int i = 0; i < kMostPackets && !input.empty(); ++i) {
    const uint8_t with = input.Byte();
    const absl::string_view packet = input.Bytes(input.Number<uint16_t>());
    if (packet.empty()) break;  // the end of a connection, to the socket
    if (!Send(client.get(), absl::StrReplaceAll(packet, tickets), with)) break;
  }
  ::shutdown(client.get(), SHUT_WR);
  ReadAnswers(client.get());
  (*socket)->Stop();
  for (const auto& grant : grants) Require(grant->ends() == 1);
}

}  // namespace
}  // namespace octavo::handoff

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  octavo::handoff::Run({data, size});
  return 0;
}
