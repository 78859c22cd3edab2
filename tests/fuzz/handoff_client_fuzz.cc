// What a server says at the hand-over socket, to the clients. The first byte chooses: the C++
// library (Handoff) on a connection for memory or for imports, or the header for producers in C
// (octavo_ring.h), which reads without a parser. Then packets: a byte (whether a descriptor of a
// memory file comes with it, and how many pages that has), two bytes of length, the packet.

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "client/cpp/include/octavo/octavo_ring.h"
#include "client/cpp/lib/handoff.h"
#include "gpu/base/unique_fd.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/scratch_folder.h"

namespace octavo::client {
namespace {

using fuzz::Input;
using fuzz::Require;

constexpr int kMostPackets = 24;
constexpr std::chrono::milliseconds kTimeout(20'000);  // never reached: the server hangs up

/// Accepts one connection, says everything and hangs up. The client's own messages are not read.
class Server {
 public:
  Server(int listener, Input said)
      : thread_([listener, said]() mutable {
          const UniqueFd connection(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
          Require(static_cast<bool>(connection));
          for (int i = 0; i < kMostPackets && !said.empty(); ++i) {
            const uint8_t with = said.Byte();
            const absl::string_view packet = said.Bytes(said.Number<uint16_t>());
            if (packet.empty() || !Send(connection.get(), packet, with)) break;
          }
          ::shutdown(connection.get(), SHUT_WR);
          char byte;  // until the client has gone
          while (::recv(connection.get(), &byte, sizeof byte, 0) > 0) continue;
        }) {}

 private:
  static bool Send(int socket, absl::string_view bytes, uint8_t with) {
    UniqueFd memory;
    if ((with & 1) != 0) {
      memory = UniqueFd(::memfd_create("fuzz", MFD_CLOEXEC));
      Require(memory && ::ftruncate(memory.get(), (with >> 1 & 3) * 4096) == 0);
    }
    iovec part{.iov_base = const_cast<char*>(bytes.data()), .iov_len = bytes.size()};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    if (memory) {
      header.msg_control = control;
      header.msg_controllen = sizeof control;
      cmsghdr* rights = CMSG_FIRSTHDR(&header);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(sizeof(int));
      const int fd = memory.get();
      std::memcpy(CMSG_DATA(rights), &fd, sizeof fd);
    }
    return ::sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0;
  }

  std::jthread thread_;
};

// An error of the library is an answer, too; any other exception ends the program.
template <class Call>
void Try(Call call) {
  try {
    call();
  } catch (const Error& error) {
    Require(error.what() != nullptr);  // a server may refuse without words
  }
}

void AsReader(const std::string& path) {
  std::shared_ptr<Handoff> handoff;
  Try([&] { handoff = Handoff::Connect(path, kTimeout); });
  if (handoff == nullptr) return;
  std::vector<Mapped> kept;
  const auto use = [&](Mapped mapped) {
    const MappedInfo& about = mapped.info();
    const auto bytes = mapped.Copy();
    Require(bytes.size() == static_cast<size_t>(about.bytes));
    (void)mapped.Revoked();
    Try([&] { mapped.Check(); });
    kept.push_back(std::move(mapped));
  };
  Try([&] { use(handoff->Present("0123456789abcdef0123456789abcdef")); });
  for (int i = 0; i < 3; ++i) Try([&] { use(handoff->Take("volumes/1")); });
  Try([&] { handoff->Poll(); });
  for (Mapped& mapped : kept) mapped.Release();
  kept.clear();
  handoff->Forget();
  Require(handoff->kept() == 0);
}

void AsLender(const std::string& path) {
  std::shared_ptr<Handoff> handoff;
  Try([&] { handoff = Handoff::Connect(path, kTimeout, handoff::v1::PURPOSE_IMPORT); });
  if (handoff == nullptr) return;
  const UniqueFd memory(::memfd_create("fuzz", MFD_CLOEXEC));
  Handoff::Loan loan;
  Try([&] { loan = handoff->Lend("0123456789abcdef0123456789abcdef", memory.get()); });
  Try([&] { (void)handoff->Publish(loan); });
  Try([&] { (void)handoff->EndOf(loan); });
  Try([&] { handoff->End(loan); });
}

void AsProducer(const std::string& path) {
  octavo_ring ring;
  char error[512] = "";
  if (octavo_ring_open(&ring, path.c_str(), "0123456789abcdef0123456789abcdef", error,
                       sizeof error) != 0)
    return Require(error[0] != '\0' && std::strlen(error) < sizeof error);
  octavo_ring_close(&ring);
}

int Listen(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const int listener = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  Require(listener >= 0 &&
          ::bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
          ::listen(listener, 8) == 0);
  return listener;
}

void Run(Input input) {
  static const fuzz::ScratchFolder folder;
  static const std::string path = folder.Path("s.sock");
  static const int listener = Listen(path);
  const uint8_t client = input.Byte();
  const Server server(listener, input);
  switch (client % 3) {
    case 0: return AsReader(path);
    case 1: return AsLender(path);
    default: return AsProducer(path);
  }
}

}  // namespace
}  // namespace octavo::client

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  octavo::client::Run({data, size});
  return 0;
}
