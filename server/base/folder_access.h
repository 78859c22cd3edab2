#pragma once

#include <cstdint>
#include <string>

namespace octavo::base {

/// What this process may do with the files of a folder.
enum class FolderAccess : uint8_t {
  kNone,  // not list it, or not reach what is in it
  kRead,
  kReadWrite,  // also make and remove entries
};

/// By permissions alone: whether the folder lies on storage that is read-only does not count. A
/// missing folder is kNone.
FolderAccess AccessTo(const std::string& folder);

}  // namespace octavo::base
