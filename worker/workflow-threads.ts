import vm from 'node:vm'

// Preloaded into the worker's threads (node --import). The SDK sets a time limit on each step into its sandbox, and
// Node starts a thread for it: 0.2 ms of CPU, some forty times per operation. The limit protects against endless loops
// in untrusted code. Our code is trusted, and Temporal notices a workflow that does not answer.

// oxlint-disable-next-line typescript/unbound-method -- called with its `this` below
const { runInContext } = vm.Script.prototype
vm.Script.prototype.runInContext = function (context, options) {
  const unlimited = { ...options }
  delete unlimited.timeout
  return runInContext.call(this, context, unlimited)
}
