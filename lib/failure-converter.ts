import { DefaultFailureConverter } from '@temporalio/common'

/** Failures' messages and stacks go through the payload codec too: they may quote what a tenant's command wrote. */
export const failureConverter = new DefaultFailureConverter({ encodeCommonAttributes: true })
