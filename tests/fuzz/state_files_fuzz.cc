// Any bytes as a file that octavod reads when it starts. The first byte chooses: the journal, the
// record of what the last end lost, a spill file, the record of a scan to resume; as it is, or with
// the checksums that it needs to be read further.

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "nlohmann/json.hpp"

#include "server/drain_record.h"
#include "server/storage/commit/journal.h"
#include "server/storage/io/crc32c.h"
#include "server/storage/resume/resume_folder.h"
#include "server/storage/spill/spill_folder.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/scratch_folder.h"

namespace octavo {
namespace {

using fuzz::Input;
using fuzz::Require;

const fuzz::ScratchFolder& Scratch() {
  static const fuzz::ScratchFolder folder;
  return folder;
}

std::string CrcOf(absl::string_view text) {
  return absl::StrCat(absl::Hex(storage::Crc32c(text.data(), text.size()), absl::kZeroPad8));
}

void CheckJournal(const std::string& text) {
  const std::string path = Scratch().Write("journal", text);
  std::vector<nlohmann::json> records;
  {
    auto journal = storage::Journal::Open(path, &records);
    Require(journal.ok());
    for (const nlohmann::json& record : records) Require(record.is_object());
    Require((*journal)->Append({{"id", "next"}}).ok());
  }
  std::vector<nlohmann::json> again;
  auto journal = storage::Journal::Open(path, &again);
  Require(journal.ok() && again.size() == records.size() + 1);
  Require(again.back() == nlohmann::json({{"id", "next"}}));
  records.push_back(again.back());
  Require(again == records);
  // What a start keeps of it.
  Require((*journal)->Replace(records).ok());
  journal->reset();
  std::vector<nlohmann::json> compact;
  Require(storage::Journal::Open(path, &compact).ok() && compact.size() == records.size());
}

std::string WithCrcs(absl::string_view lines) {
  std::string text;
  for (const absl::string_view line : absl::StrSplit(lines, '\n'))
    absl::StrAppend(&text, CrcOf(line), " ", line, "\n");
  return text;
}

void CheckDrainRecord(absl::string_view text) {
  (void)Scratch().Write("held_at_stop.jsonl", text);
  const std::set<std::string> present = {"volumes/here"};
  const auto lost = drain::DrainRecord::ReadLost(Scratch().Path(""), present);
  for (const auto& volume : lost) {
    Require(!volume.line.empty() && !volume.name.empty() && !present.contains(volume.name));
    Require(volume.killed || volume.reason.empty() ||
            absl::StrContains(volume.line, volume.reason));
  }
  drain::DrainRecord::Forget(Scratch().Path(""));
  Require(drain::DrainRecord::ReadLost(Scratch().Path(""), present).empty());
}

void CheckSpill(const std::string& bytes) {
  (void)Scratch().Write("spill/a.spill", bytes);
  std::vector<storage::SpillFolder::Found> found;
  std::vector<std::string> report;
  {
    const auto folder =
        storage::SpillFolder::Open(Scratch().Path("spill"), 1 << 20, &found, &report);
    Require(folder.ok() && found.size() + report.size() == 1);
    Require((*folder)->used_bytes() == (found.empty() ? 0 : static_cast<int64_t>(bytes.size())));
  }
  for (const auto& one : found) {
    const int64_t size = one.file->bytes();
    Require(size >= 0 && size <= static_cast<int64_t>(bytes.size()));
    const auto cursor = one.file->Open();
    Require(cursor.ok());
    std::vector<char> out(static_cast<size_t>(size));
    for (const auto& [offset, count] :
         {std::pair<int64_t, int64_t>{0, size}, {size / 3, size / 2}}) {
      const absl::Status read = (*cursor)->Read(offset, count, out.data());
      Require(read.ok() ? absl::string_view(out.data(), static_cast<size_t>(count)) ==
                              absl::string_view(bytes).substr(static_cast<size_t>(offset),
                                                              static_cast<size_t>(count))
                        : absl::IsDataLoss(read));
    }
    Require(absl::IsOutOfRange((*cursor)->Read(size, 1, out.data())));
    Require(absl::IsOutOfRange((*cursor)->Read(-1, 1, out.data())));
  }
}

// The voxels, a zero, and the text of the footer; CRC stands for that of the voxels.
std::string SpillFileOf(Input input) {
  const std::string voxels(input.Until('\0'));
  std::string footer(input.Rest());
  if (const size_t at = footer.find("CRC"); at != std::string::npos)
    footer.replace(at, 3, absl::StrCat(storage::Crc32c(voxels.data(), voxels.size())));
  if (const size_t at = footer.find("SIZE"); at != std::string::npos)
    footer.replace(at, 4, absl::StrCat(voxels.size()));
  const uint64_t length = footer.size();
  const uint32_t crc = storage::Crc32c(footer.data(), footer.size());
  std::string tail(16, '\0');
  std::memcpy(tail.data(), &length, 8);
  std::memcpy(tail.data() + 8, &crc, 4);
  std::memcpy(tail.data() + 12, "OSP1", 4);
  return voxels + footer + tail;
}

void CheckResumeRecord(absl::string_view bytes) {
  const std::string id = "a-1", path = Scratch().Write("resume/" + id + ".resume", bytes);
  const auto open = [&](std::vector<std::string>* found, std::vector<std::string>* report) {
    auto folder = storage::ResumeFolder::Open(Scratch().Path("resume"), found, report);
    Require(folder.ok());
    return *std::move(folder);
  };
  std::vector<std::string> found, report;
  const auto folder = open(&found, &report);
  Require(found.size() + report.size() == 1 && std::filesystem::exists(path) != found.empty());
  const auto record = folder->Get(id);
  Require(record.ok() == !found.empty());
  if (record.ok()) {
    Require(record->id == id && absl::StartsWith(record->scan, "scans/"));
    Require(record->early_deaths >= 0 && record->request.size() <= bytes.size());
    // As a daemon writes it again: escaped, it may be too long.
    const absl::Status put = folder->Put(*record);
    Require(put.ok() || absl::IsInvalidArgument(put));
    const auto again = folder->Get(id);
    Require(again.ok() && again->scan == record->scan && again->owner == record->owner &&
            again->project == record->project && again->role == record->role &&
            again->early == record->early && again->early_deaths == record->early_deaths &&
            again->begun_unix_ns == record->begun_unix_ns && again->request == record->request);
    Require(folder->Remove(id).ok());
  }
  // What was put aside stays there, and is no record.
  std::vector<std::string> left, told;
  (void)open(&left, &told);
  Require(left.empty() && told.empty());
}

// The header, a zero, and the request.
std::string ResumeRecordOf(Input input) {
  const std::string header(input.Until('\0'));
  const auto length = static_cast<uint32_t>(header.size());
  std::string bytes("ORS1\0\0\0\0\0\0\0\0", 12);
  std::memcpy(bytes.data() + 8, &length, 4);
  absl::StrAppend(&bytes, header, input.Rest());
  const uint32_t crc = storage::Crc32c(bytes.data() + 8, bytes.size() - 8);
  std::memcpy(bytes.data() + 4, &crc, 4);
  return bytes;
}

void Run(Input input) {
  std::error_code error;
  Scratch().Clear();
  for (const char* const name : {"spill", "resume"}) {
    std::filesystem::create_directory(Scratch().Path(name), error);
    std::filesystem::permissions(Scratch().Path(name), std::filesystem::perms::owner_all, error);
  }
  switch (input.Byte() % 7) {
    case 0: return CheckJournal(std::string(input.Rest()));
    case 1: return CheckJournal(WithCrcs(input.Rest()));
    case 2: return CheckDrainRecord(input.Rest());
    case 3: return CheckSpill(std::string(input.Rest()));
    case 4: return CheckSpill(SpillFileOf(input));
    case 5: return CheckResumeRecord(input.Rest());
    default: return CheckResumeRecord(ResumeRecordOf(input));
  }
}

}  // namespace
}  // namespace octavo

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 1 << 16) return 0;
  octavo::Run({data, size});
  return 0;
}
