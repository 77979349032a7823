import { type ImagePolicy, makeImagePolicy } from '../../lib/image-policy.ts'
import { Problem } from '../../lib/problem.ts'

// The rule for image references, where operations are accepted. The role that accepts them for tenants sets it once.

let policy: ImagePolicy = makeImagePolicy({})

export function useImagePolicy(its: ImagePolicy): void {
  policy = its
}

const words = {
  local_image_id: 'Name an image by its repository, not by an id',
  image_not_allowed: 'The platform takes no images from this registry',
}

/** Throws `local_image_id` and `image_not_allowed`. */
export function needAllowedImage(reference: string | undefined): void {
  const fault = reference === undefined ? null : policy(reference)
  if (fault) throw new Problem(422, fault, 'The image is not allowed', words[fault])
}
