#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include "absl/strings/string_view.h"

#include "tests/fuzz/fuzz_input.h"

namespace octavo::fuzz {

/// A folder of this process, in memory where there is such a file system; removed at the end.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::error_code error;
    path_ = std::filesystem::is_directory("/dev/shm", error) ? "/dev/shm/octavo-fuzz-XXXXXX"
                                                             : "/tmp/octavo-fuzz-XXXXXX";
    Require(::mkdtemp(path_.data()) != nullptr);
  }
  ~ScratchFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  std::string Path(const std::string& name) const { return path_ + "/" + name; }
  /// Writes the file, in place of one that is there; its path.
  std::string Write(const std::string& name, absl::string_view bytes) const {
    std::string path = Path(name);
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    file.close();
    Require(file.good());
    return path;
  }
  /// Removes all that is in it.
  void Clear() const {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(path_, error))
      std::filesystem::remove_all(entry.path(), error);
  }

 private:
  std::string path_;
};

}  // namespace octavo::fuzz
