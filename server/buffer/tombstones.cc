#include "server/buffer/tombstones.h"

namespace octavo::buffer {

void Tombstones::Add(const std::string& name, const std::string& text, int64_t now_ns) {
  text_of_[name] = text;
  in_order_.emplace_back(now_ns, name);
}

const std::string* Tombstones::Find(const std::string& name) const {
  const auto it = text_of_.find(name);
  return it == text_of_.end() ? nullptr : &it->second;
}

void Tombstones::AddPrivate(const std::string& name, const std::string& key) {
  if (!key_of_.emplace(name, key).second) return;
  private_in_order_.push_back(name);
  if (private_in_order_.size() <= kMostPrivate) return;
  key_of_.erase(private_in_order_.front());
  private_in_order_.pop_front();
}

const std::string* Tombstones::KeyOf(const std::string& name) const {
  const auto it = key_of_.find(name);
  return it == key_of_.end() ? nullptr : &it->second;
}

void Tombstones::Purge(int64_t now_ns) {
  while (!in_order_.empty() &&
         (now_ns - in_order_.front().first > kKeptNs || in_order_.size() > kMost)) {
    text_of_.erase(in_order_.front().second);
    in_order_.pop_front();
  }
}

}  // namespace octavo::buffer
