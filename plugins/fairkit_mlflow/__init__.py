"""fairkit inside MLflow: an evaluator of models, and a receiver of webhooks that watches over aliases."""
