#include "server/volume/spill_tiers.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/size_text.h"
#include "gpu/base/status.h"
#include "server/volume/spill_metadata.h"

namespace octavo::volume {
namespace {

class MemoryCursor final : public storage::SpillCursor {
 public:
  explicit MemoryCursor(std::shared_ptr<void> memory) : memory_(std::move(memory)) {}
  absl::Status Read(int64_t offset, int64_t bytes, void* out) override {
    std::memcpy(out, static_cast<const char*>(memory_.get()) + offset, static_cast<size_t>(bytes));
    return absl::OkStatus();
  }

 private:
  const std::shared_ptr<void> memory_;
};

}  // namespace

/// Page-locked host memory. The room counts as used until the last reader is done.
class SpillTiers::HostVolume final : public SpilledVolume {
 public:
  HostVolume(std::shared_ptr<void> memory, int64_t bytes)
      : bytes_(bytes), memory_(std::move(memory)) {}
  model::Tier tier() const override { return model::Tier::kHost; }
  int64_t bytes() const override { return bytes_; }
  absl::StatusOr<std::unique_ptr<storage::SpillCursor>> Open() const override {
    return std::make_unique<MemoryCursor>(memory_);
  }
  void Remove() const override {}  // the last reader frees it

 private:
  const int64_t bytes_;
  const std::shared_ptr<void> memory_;
};

class SpillTiers::HostWriter final : public SpillTiers::Writer {
 public:
  HostWriter(std::shared_ptr<void> memory, int64_t bytes)
      : bytes_(bytes), memory_(std::move(memory)) {}
  absl::Status Append(const void* data, int64_t bytes) override {
    std::memcpy(static_cast<char*>(memory_.get()) + written_, data, static_cast<size_t>(bytes));
    written_ += bytes;
    return absl::OkStatus();
  }
  void Describe(const model::VolumeStatus&) override {}
  void SetGate(std::shared_ptr<storage::SpillGate>) override {}  // nobody finds memory again
  absl::StatusOr<std::shared_ptr<const SpilledVolume>> Finish() override {
    return std::make_shared<const HostVolume>(std::move(memory_), bytes_);
  }

 private:
  const int64_t bytes_;
  std::shared_ptr<void> memory_;
  int64_t written_ = 0;
};

class SpillTiers::DiskVolume final : public SpilledVolume {
 public:
  explicit DiskVolume(std::shared_ptr<storage::SpillFile> file) : file_(std::move(file)) {}
  model::Tier tier() const override { return model::Tier::kDisk; }
  int64_t bytes() const override { return file_->bytes(); }
  int64_t taken_bytes() const override { return file_->charged_bytes(); }
  absl::StatusOr<std::unique_ptr<storage::SpillCursor>> Open() const override {
    return file_->Open();
  }
  void Remove() const override { file_->Remove(); }
  absl::Status NoteMark(bool marked) const override {
    return file_->Write(marked ? storage::SpillNote::kMarked : storage::SpillNote::kUnmarked);
  }

 private:
  const std::shared_ptr<storage::SpillFile> file_;
};

class SpillTiers::DiskWriter final : public SpillTiers::Writer {
 public:
  DiskWriter(const Context& context, std::unique_ptr<storage::SpillWriter> writer)
      : context_(context), writer_(std::move(writer)) {}
  absl::Status Append(const void* data, int64_t bytes) override {
    return writer_->Append(data, bytes);
  }
  void Describe(const model::VolumeStatus& volume) override {
    writer_->SetAbout(AboutOf(volume, context_.meta_of(volume)));
  }
  void SetGate(std::shared_ptr<storage::SpillGate> gate) override {
    writer_->SetGate(std::move(gate));
  }
  absl::StatusOr<std::shared_ptr<const SpilledVolume>> Finish() override {
    OCTAVO_ASSIGN_OR_RETURN(auto file, writer_->Finish());
    return Adopt(std::move(file));
  }

 private:
  const Context& context_;
  const std::unique_ptr<storage::SpillWriter> writer_;
};

SpillTiers::SpillTiers(Context context) : context_(std::move(context)) {
  for (int d = 0; d < context_.devices.size(); ++d) {
    host_pools_.push_back(std::make_shared<memory::FramePool>(
        &context_.devices.device(d), context_.host_bytes, memory::FramePool::Sizes::kExact));
  }
}

SpillTiers::~SpillTiers() = default;

absl::Status SpillTiers::Check(model::Tier tier) const {
  const bool off = tier == model::Tier::kHost
                       ? context_.host_bytes == 0
                       : context_.folder == nullptr || context_.folder->quota_bytes() == 0;
  if (tier == model::Tier::kDevice)
    return InvalidField("tier", "is DEVICE; allowed HOST, DISK (RestoreVolume moves back)");
  if (!off) return absl::OkStatus();
  const char* key = tier == model::Tier::kHost ? "spill.host_bytes" : "spill.disk_bytes";
  return WithInfo(
      absl::FailedPreconditionError(absl::StrCat("the tier ", Name(tier), " is off: ", key,
                                                 " of the server's configuration is 0")),
      {.reason = Reason::kSpillOff, .field = "", .numbers = {{"key", key}}});
}

int64_t SpillTiers::FreeOf(model::Tier tier) const {
  if (!Check(tier).ok()) return 0;
  if (tier == model::Tier::kHost) return std::max<int64_t>(0, context_.host_bytes - *host_used_);
  return std::max<int64_t>(0,
                           std::min(context_.folder->quota_bytes() - context_.folder->used_bytes(),
                                    context_.folder->disk_free_bytes()));
}

model::TierUse SpillTiers::UseOf(model::Tier tier) const {
  model::TierUse use;
  use.tier = tier;
  if (tier == model::Tier::kHost) {
    use.quota_bytes = context_.host_bytes;
    use.used_bytes = *host_used_;
  } else if (context_.folder != nullptr) {
    use.quota_bytes = context_.folder->quota_bytes();
    use.used_bytes = context_.folder->used_bytes();
    use.path = context_.folder->path();
    use.disk_free_bytes = context_.folder->disk_free_bytes();
  }
  return use;
}

int64_t SpillTiers::DiskBytesOf(const model::VolumeStatus& volume) const {
  return storage::SpillFileBytes(volume.bytes, AboutOf(volume, context_.meta_of(volume)));
}

absl::StatusOr<std::unique_ptr<SpillTiers::Writer>> SpillTiers::Begin(
    model::Tier tier, const model::VolumeStatus& volume, int device) {
  if (tier == model::Tier::kHost) return BeginOnHost(volume.bytes, device);
  const std::string id = volume.name.substr(volume.name.find('/') + 1);
  OCTAVO_ASSIGN_OR_RETURN(
      auto writer,
      context_.folder->Create(id, volume.bytes, AboutOf(volume, context_.meta_of(volume))));
  return std::make_unique<DiskWriter>(context_, std::move(writer));
}

absl::StatusOr<std::unique_ptr<SpillTiers::Writer>> SpillTiers::BeginOnHost(int64_t bytes,
                                                                            int device) {
  int64_t used = *host_used_;
  do {
    if (used + bytes <= context_.host_bytes) continue;
    return WithInfo(absl::ResourceExhaustedError(absl::StrCat(
                        "the tier HOST uses ", SizeText(used), " of its ",
                        SizeText(context_.host_bytes), "; the volume needs ", SizeText(bytes),
                        "; commit or discard spilled volumes, or raise spill.host_bytes")),
                    {.reason = Reason::kSpillQuota,
                     .field = "",
                     .numbers = {{"wanted", absl::StrCat(bytes)},
                                 {"used", absl::StrCat(used)},
                                 {"quota", absl::StrCat(context_.host_bytes)},
                                 {"retryable", "true"}}});
  } while (!host_used_->compare_exchange_weak(used, used + bytes));
  // Gives the room back when it ends.
  const std::shared_ptr<void> room(
      nullptr, [used_bytes = host_used_, bytes](void*) { *used_bytes -= bytes; });
  OCTAVO_ASSIGN_OR_RETURN(const std::shared_ptr<void> block,
                          host_pools_[static_cast<size_t>(device)]->Get(bytes));
  std::shared_ptr<void> memory(block.get(), [block, room](void*) {});
  return std::make_unique<HostWriter>(std::move(memory), bytes);
}

std::shared_ptr<const SpilledVolume> SpillTiers::Adopt(std::shared_ptr<storage::SpillFile> file) {
  return std::make_shared<const DiskVolume>(std::move(file));
}

}  // namespace octavo::volume
