import { DefaultFailureConverter } from '@temporalio/common'

/** Also encrypts messages and stacks of failures: they may quote the output of a tenant's command. */
export const failureConverter = new DefaultFailureConverter({ encodeCommonAttributes: true })
