import { allOperations } from '../../api/index.ts'
import type { Operation } from '../../api/operation.ts'

// What the platform declares, for tests that walk all of it: a new operation is covered by being declared.

const never = (): never => {
  throw new Error('nothing is called here')
}

export const declared: (Operation & { name: string })[] = allOperations({
  cancel: never,
  apiUrl: 'http://127.0.0.1',
  workflowUrl: never,
}).map((operation) => ({ ...operation, name: `${operation.method} ${operation.path}` }))
