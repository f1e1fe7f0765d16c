// consumer MODEL: attaches, multiplies with each of its packs here and by the daemon, and compares.
#include <cstdint>
#include <cstdio>
#include <vector>

#include "glyd/client.h"
#include "glyd/linear.h"

namespace {

constexpr uint16_t kOne = 0x3f80;  // 1.0 in bf16

absl::Status Compare(const glyd::Model& model, const glyd::ModelPack& pack) {
  const std::vector<uint16_t> x(pack.cols, kOne);
  std::vector<uint16_t> here(pack.rows), there(pack.rows);
  const absl::Status done =
      glyd::LinearInProcess(pack, x, /*m=*/1, /*bias=*/{}, absl::MakeSpan(here), /*threads=*/1);
  if (!done.ok()) return done;
  const absl::StatusOr<glyd::DaemonProduct> product =
      glyd::LinearByDaemon(model, pack.name, /*m=*/1, x, absl::MakeSpan(there));
  if (!product.ok()) return product.status();
  return here == there ? absl::OkStatus() : absl::DataLossError(pack.name + ": other bits");
}

absl::Status Run(const char* name) {
  const absl::StatusOr<glyd::Client> client = glyd::Client::Connect();
  if (!client.ok()) return client.status();
  const absl::StatusOr<glyd::Model> model = client->Attach(name);
  if (!model.ok()) return model.status();
  for (const glyd::ModelPack& pack : model->packs())
    if (const absl::Status same = Compare(*model, pack); !same.ok()) return same;
  std::printf("%zu packs, the same bits on both sides\n", model->packs().size());
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  const absl::Status status = argc == 2 ? Run(argv[1]) : absl::InvalidArgumentError("MODEL");
  if (!status.ok()) std::fprintf(stderr, "consumer: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
