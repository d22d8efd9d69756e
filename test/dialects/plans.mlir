// RUN: symshape-opt %s | symshape-opt | filecheck %s

// CHECK-LABEL: func.func private @table(
// CHECK-SAME:    %[[X:.*]]: tensor<?x?xf32>, %[[D:.*]]: tensor<?xf32>, %[[N:.*]]: index, %[[M:.*]]: index
func.func private @table(%x: tensor<?x?xf32>, %d: tensor<?xf32>, %n: index, %m: index)
    attributes {symshape.kernel, symshape.num_inputs = 2 : i64, symshape.num_outputs = 0 : i64} {
  %c15 = arith.constant 15 : index
  %c0 = arith.constant 0 : index
  %c512 = arith.constant 512 : index
  %true = arith.constant true
  // CHECK: %[[A:.*]] = "symshape.address"(%[[X]]) : (tensor<?x?xf32>) -> index
  %a = "symshape.address"(%x) : (tensor<?x?xf32>) -> index
  // CHECK: %[[P:.*]] = "symshape.processors"() : () -> index
  %p = "symshape.processors"() : () -> index
  %either = arith.ori %a, %m : index
  %low = arith.andi %either, %c15 : index
  %aligned = arith.cmpi eq, %low, %c0 : index
  %short = arith.cmpi sle, %m, %c512 : index
  %both = arith.andi %short, %aligned : i1
  // CHECK: "symshape.variant"(%{{.*}}) {aligned = ["in0", "s1"], dims = [], form = "persistent", index_bits = 32 : i64, name = "persistent512", num_stages = 1 : i64, num_warps = 4 : i64, one_launch = false, rblock = 512 : i64, xblock = 2 : i64, yblock = 0 : i64} : (i1) -> ()
  "symshape.variant"(%both) {name = "persistent512", form = "persistent", xblock = 2 : i64, yblock = 0 : i64, rblock = 512 : i64,
    num_warps = 4 : i64, num_stages = 1 : i64, one_launch = false, index_bits = 32 : i64, aligned = ["in0", "s1"], dims = []} : (i1) -> ()
  %splits = arith.ceildivsi %p, %n : index
  // CHECK: "symshape.variant"(%{{.*}}, %{{.*}}) {{{.*}}form = "split"{{.*}}} : (i1, index) -> ()
  "symshape.variant"(%true, %splits) {name = "split", form = "split", xblock = 1 : i64, yblock = 512 : i64, rblock = 2048 : i64,
    num_warps = 8 : i64, num_stages = 1 : i64, one_launch = false, index_bits = 64 : i64, aligned = [], dims = []} : (i1, index) -> ()
  return
}

// CHECK-LABEL: func.func private @tile(
func.func private @tile() attributes {symshape.kernel, symshape.num_inputs = 0 : i64, symshape.num_outputs = 0 : i64} {
  %true = arith.constant true
  // CHECK: "symshape.variant"(%{{.*}}) {{{.*}}dims = ["d0", "d2"], form = "tile"
  "symshape.variant"(%true) {name = "tile64", form = "tile", xblock = 64 : i64, yblock = 64 : i64, rblock = 0 : i64,
    num_warps = 8 : i64, num_stages = 1 : i64, one_launch = false, index_bits = 32 : i64, aligned = [], dims = ["d0", "d2"]} : (i1) -> ()
  return
}
