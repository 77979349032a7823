import { allOperations } from '../../api/index.ts'
import type { Operation } from '../../api/operation.ts'

// The platform's declarations, for tests that walk all of them: declaring an operation covers it.

const never = (): never => {
  throw new Error('nothing is called here')
}

export const declared: (Operation & { name: string })[] = allOperations({
  cancel: never,
  apiUrl: 'http://127.0.0.1',
  workflowUrl: never,
}).map((operation) => ({ ...operation, name: `${operation.method} ${operation.path}` }))
