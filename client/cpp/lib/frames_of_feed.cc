#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "client/cpp/lib/convert.h"
#include "client/cpp/lib/frame_stream.h"
#include "client/cpp/lib/handoff.h"
#include "client/cpp/wire/frame_feed_reader.h"

namespace octavo::client {
namespace {

/// Copies each frame out of the shared memory, so that the caller may keep and change it; a copy
/// takes less than the wake-up of a thread that would be told of the frame's end.
class FeedFrames final : public FrameStream::Impl {
 public:
  FeedFrames(const std::string& path, const std::string& ticket) : path_(path) {
    if (!frames_.Open(path, ticket))
      throw Refusal(Code::kUnavailable, "SERVER_GONE",
                    "cannot connect to '" + path + "': " + std::strerror(errno));
  }

  bool Next(Frame* frame) override {
    if (over_) return false;
    wire::FrameFeedReader::Arrived arrived;
    const auto event = frames_.Next(&arrived);
    if (event == wire::FrameFeedReader::Event::kFrame) {
      v1::Frame about;
      if (!about.ParseFromArray(arrived.about.data(), static_cast<int>(arrived.about.size()))) {
        over_ = true;
        throw Unknown("the server sent a frame whose description cannot be read");
      }
      *frame = Decode(about);
      frame->array.data.resize(arrived.data.size());
      if (!arrived.data.empty())
        std::memcpy(frame->array.data.data(), arrived.data.data(), arrived.data.size());
      frames_.Done(arrived.slot);
      return true;
    }
    over_ = true;
    if (cancelled_) return false;
    if (event == wire::FrameFeedReader::Event::kUnknown) throw Unknown(frames_.problem());
    if (event == wire::FrameFeedReader::Event::kGone)
      throw Refusal(Code::kUnavailable, "SERVER_GONE", "the connection to " + path_ + " has ended");
    if (frames_.refusal().code() != 0) throw ErrorOf(frames_.refusal());
    return false;
  }
  void Cancel() override {
    cancelled_ = true;
    frames_.Shut();
  }

 private:
  Error Unknown(const std::string& what) const {
    return Refusal(Code::kInternal, "PROTOCOL", what + " (" + path_ + ")");
  }

  const std::string path_;
  wire::FrameFeedReader frames_;
  bool over_ = false;
  std::atomic<bool> cancelled_{false};
};

}  // namespace

std::unique_ptr<FrameStream::Impl> FramesOfFeed(const std::string& path,
                                                const std::string& ticket) {
  return std::make_unique<FeedFrames>(path, ticket);
}

}  // namespace octavo::client
